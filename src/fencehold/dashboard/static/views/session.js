// One session: its client, what it holds, what it waits for.
import { useLive } from "../live.js";
import { Age, Badge, Card, Empty, eventKey, EventRow, Left, Name, ownerName, Party, sessionName, Trouble, visible } from "../parts.js";
import { link } from "../router.js";
import { number } from "../time.js";
import { html } from "../vendor/preact-htm.js";

export function SessionView({ params }) {
  const [view, problem] = useLive("session", { session: params.session, tier: params.tier });
  if (problem) return html`<${Trouble} problem=${problem} />`;
  if (!view) return html`<p class="boot" role="status">Looking …</p>`;
  const { session, client } = view;
  return html`<div class="page">
    <div class="page-head"><a class="back" href=${link("sessions")}>Sessions</a><h1 class="mono">${visible(client?.name || client?.user || sessionName(Number(params.session)))}</h1>
      ${session ? html`<${Badge} tone=${session.connected ? "good" : "bad"}>${session.connected ? "connected" : "gone"}</${Badge}>` : html`<${Badge} tone="bad">ended</${Badge}>`}</div>
    ${!session && html`<p class="banner note">This session has ended, or you may not see it. What is still known of it is below.</p>`}
    <div class="cards wide">
      <${Card} id="who" title="Client"><dl class="facts">
        ${session && html`
          <div><dt>Trust left</dt><dd><${Left} until=${session.expires_ms} ttl=${session.ttl_ms} isLeased=${true} /></dd></div>
          <div><dt>Last keep-alive</dt><dd><${Age} since=${session.kept_alive_ms} /> ago</dd></div>
          <div><dt>Open for</dt><dd><${Age} since=${session.since_ms} /></dd></div>
          <div><dt>Principal</dt><dd>${session.principal || "–"}</dd></div>
          <div><dt>Address</dt><dd>${session.peer || session.host || "–"}</dd></div>`}
        ${Object.entries(view.details).map(([key, value]) => html`<div key=${key}><dt>${visible(key)}</dt><dd>${visible(value)}</dd></div>`)}
        <div><dt>Session</dt><dd class="figure">${view.sessions.length > 1 ? `one in each of ${view.sessions.length} shards` : sessionName(Number(params.session)).replace("session ", "")}</dd></div></dl></${Card}>
      ${view.sessions.length > 1 && html`<${Card} id="shards" title="Sessions" count=${view.sessions.length}><ul class="rows">${view.sessions.map((row) => html`<li key=${row.session}><${Badge} tone=${row.connected ? "good" : "bad"}>${row.connected ? "connected" : "gone"}</${Badge}>
        <span class="what"><strong>shard ${row.shard}</strong><span class="sub dim">${sessionName(row.session).replace(/ of shard.*/, "")}, holds ${number(row.holds)}, waits for ${number(row.waits)}</span></span>
        <${Left} until=${row.expires_ms} ttl=${row.ttl_ms} isLeased=${true} /></li>`)}</ul></${Card}>`}
      <${Card} id="waits" title="Waits for" count=${view.waits.length}>
        ${view.waits.length ? html`<ul class="rows">${view.waits.map((wait) => html`<li key=${`${wait.name} ${wait.client.owner}`}><${Age} since=${wait.since_ms} className="lead" />
          <span class="what"><${Name} name=${wait.name} tier=${params.tier} /><span class="sub">${wait.client.owner && html`<span class="party-owner">${ownerName(wait.client.owner)}</span> `}<span class="dim">behind </span><${Party} of=${wait.holder} isShort=${true} /></span></span><span class="dim figure">place ${wait.place}</span></li>`)}</ul>` : html`<${Empty} title="Nothing" />`}</${Card}>
      <${Card} id="holds" title="Holds" count=${view.hold_count}>
        ${view.holds.length ? html`<ul class="rows">${view.holds.map((row) => html`<li key=${row.name}><${Age} since=${row.since_ms} className="lead" /><span class="what"><${Name} name=${row.name} tier=${params.tier} />${row.client?.owner && html`<span class="sub"><span class="party-owner">${ownerName(row.client.owner)}</span></span>`}</span>
          ${row.waiters ? html`<${Badge} tone="wait">${number(row.waiters)} waiting</${Badge}>` : html`<span class="fence">#${row.fence}</span>`}</li>`)}</ul>
          ${view.hold_count > view.holds.length && html`<p class="dim pad">and ${number(view.hold_count - view.holds.length)} more</p>`}` : html`<${Empty} title="Nothing" />`}</${Card}>
      <${Card} id="events" title="Lately">
        ${view.events.length ? html`<ul class="events">${view.events.map((event) => html`<${EventRow} key=${eventKey(event)} event=${event} tier=${params.tier} />`)}</ul>` : html`<${Empty} title="Nothing happened lately" />`}</${Card}>
    </div></div>`;
}
