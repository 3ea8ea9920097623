// The overview: the state of the service, what needs attention first.
import { Chart } from "../charts.js";
import { useLive } from "../live.js";
import { Age, Badge, Card, Empty, eventKey, EventRow, Left, Name, Party, Trouble } from "../parts.js";
import { prefer, usePreferences } from "../preferences.js";
import { link } from "../router.js";
import { number, rate } from "../time.js";
import { html } from "../vendor/preact-htm.js";
import { NodeList, ShardList } from "./nodes.js";

const SPANS = [[90, "90 s"], [300, "5 m"], [900, "15 m"]];

export function Overview() {
  const { span_s } = usePreferences();
  const [view, problem] = useLive("overview", { span_s });
  if (problem) return html`<${Trouble} problem=${problem} />`;
  if (!view) return html`<p class="boot" role="status">Looking …</p>`;
  const { figures, chart, remarks } = view;
  const { until, step_s } = chart;
  const series = (label, values, tone) => ({ label, values, tone });
  return html`<div class="page">
    <div class="page-head"><h1>Overview</h1><span class="grow"></span>
      <div class="tabs" role="group" aria-label="How far back">${SPANS.map(([span, words]) => html`<button key=${span} type="button" aria-pressed=${span === span_s} onClick=${() => prefer({ span_s: span })}>${words}</button>`)}</div></div>
    ${remarks.map((remark, at) => html`<p key=${at} class="banner ${remark.level}">${remark.text}</p>`)}
    <div class="tiles">
      <${Tile} label="grants a second" value=${rate(figures.grants_per_s)} />
      <${Tile} label="names held" value=${number(figures.names_held)} href=${link("names", { state: "held" })} />
      <${Tile} label="waiting" value=${number(figures.waiters)} href=${link("names", { state: "awaited", sort: "queue" })} tone=${figures.waiters ? "wait" : ""}
        note=${figures.names_awaited ? `for ${number(figures.names_awaited)} name${figures.names_awaited === 1 ? "" : "s"}` : ""} />
      <${Tile} label="sessions" value=${number(figures.sessions)} href=${link("sessions")} note=${`${number(figures.connected_clients)} connections`} />
    </div>
    <div class="charts">
      <${Chart} title="Throughput" unit="/s" isRate=${true} until=${until} step=${step_s}
        series=${[series("granted", chart.rates.granted, "good"), series("released", chart.rates.released, "quiet")]} />
      <${Chart} title="Waiting" unit="" until=${until} step=${step_s}
        series=${[series("in queues", chart.levels.waiting, "wait"), series("joined /s", chart.rates.queued, "quiet")]} />
      <${Chart} title="Held" unit="" until=${until} step=${step_s}
        series=${[series("names", chart.levels.held, "good"), series("sessions", chart.levels.sessions, "quiet")]} />
      <${Chart} title="Losses and refusals" unit="/s" isRate=${true} until=${until} step=${step_s}
        series=${[series("holds lost", chart.rates.lost, "bad"), series("waits refused", chart.rates.refused, "warn")]} />
    </div>
    <div class="cards">
      <${Card} id="waits" title="Longest waits" more=${html`<a href=${link("waits")}>who waits for whom</a>`}>
        ${view.longest_waits.length ? html`<ul class="rows">${view.longest_waits.map((each) => html`<li key=${`${each.name} ${each.client.session} ${each.client.owner}`}>
          <${Age} since=${each.since_ms} className="lead" /><span class="what"><${Name} name=${each.name} /><span class="sub"><${Party} of=${each.client} isShort=${true} /> ${each.holder && html`<span class="dim">behind </span><${Party} of=${each.holder} isShort=${true} />`}</span></span><span class="dim figure">place ${each.place}</span></li>`)}</ul>`
          : html`<${Empty} title="No waiters">Every acquire is granted as it is asked for.</${Empty}>`}
      </${Card}>
      <${Card} id="holds" title="Longest holds" more=${html`<a href=${link("names", { sort: "age" })}>all names</a>`}>
        ${view.longest_holds.length ? html`<ul class="rows">${view.longest_holds.map((row) => html`<li key=${row.name}>
          <${Age} since=${row.since_ms} className="lead" /><span class="what"><${Name} name=${row.name} /><span class="sub"><${Party} of=${row.client} isShort=${true} /></span></span>
          ${row.waiters ? html`<${Badge} tone="wait">${number(row.waiters)} waiting</${Badge}>` : html`<span class="fence">#${row.fence}</span>`}</li>`)}</ul>`
          : html`<${Empty} title="Nothing is held">Try: <code>fencehold run hello -- sleep 60</code></${Empty}>`}
      </${Card}>
      <${Card} id="hot" title="Hottest names" more=${html`<a href=${link("names", { sort: "queue", state: "awaited" })}>by queue</a>`}>
        ${view.hottest.length ? html`<ul class="rows">${view.hottest.map((each) => html`<li key=${each.name}>
          <span class="lead figure">${number(each.events_per_min)}<small> /min</small></span><span class="what"><${Name} name=${each.name} /></span>
          ${each.waiters ? html`<${Badge} tone="wait">${number(each.waiters)} waiting</${Badge}>` : html`<span></span>`}</li>`)}</ul>`
          : html`<${Empty} title="Nothing happened lately" />`}
      </${Card}>
      <${Card} id="jeopardy" title="Sessions in jeopardy" more=${html`<a href=${link("sessions", { sort: "expires" })}>all sessions</a>`}>
        ${view.jeopardy.length ? html`<ul class="rows">${view.jeopardy.map((row) => html`<li key=${row.session}>
          <span class="lead"><${Left} until=${row.expires_ms} isLeased=${true} ttl=${row.ttl_ms} /></span>
          <span class="what"><${Party} of=${{ session: row.session, name: row.client, host: row.host, pid: row.pid, user: row.user }} /><span class="sub dim">holds ${row.holds}, waits for ${row.waits}</span></span>
          <${Badge} tone=${row.connected ? "warn" : "bad"}>${row.connected ? "late" : "gone"}</${Badge}></li>`)}</ul>`
          : html`<${Empty} title="None">All sessions that hold something are connected, and kept alive.</${Empty}>`}
      </${Card}>
      <${Card} id="nodes" title="Nodes" more=${html`<a href=${link("nodes")}>more</a>`}><${NodeList} nodes=${view.nodes} server=${view.server} isShort=${true} /></${Card}>
      ${view.shards && html`<${Card} id="shards" title="Shards" count=${view.shards.length} more=${html`<a href=${link("nodes")}>more</a>`}><${ShardList} shards=${view.shards} /></${Card}>`}
      <${Card} id="lately" title="Lately" more=${html`<a href=${link("events")}>all events</a>`}>
        ${view.events.length ? html`<ul class="events">${view.events.slice(0, 8).map((event) => html`<${EventRow} key=${eventKey(event)} event=${event} />`)}</ul>` : html`<${Empty} title="Nothing happened lately" />`}
      </${Card}>
    </div>
  </div>`;
}

function Tile({ label, value, href, note, tone = "" }) {
  const inside = html`<span class="tile-value ${tone}">${value}</span><span class="tile-label">${label}</span><span class="tile-note">${note}</span>`;
  return href ? html`<a class="tile" href=${href}>${inside}</a>` : html`<div class="tile">${inside}</div>`;
}
