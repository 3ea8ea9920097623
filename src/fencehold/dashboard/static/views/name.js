// One name: who holds it, who waits, what happened to it, and breaking its hold.
import { ask, change, query } from "../api.js";
import { useLive } from "../live.js";
import { Age, Badge, Card, Dialog, Empty, eventKey, EventRow, Left, Name, Party, Trouble, visible, When } from "../parts.js";
import { link } from "../router.js";
import { duration, number, useNow } from "../time.js";
import { read, Timeline } from "../timeline.js";
import { html, useEffect, useState } from "../vendor/preact-htm.js";

const HOLDS_SHOWN = 50;

export function NameView({ params, who }) {
  const { name = "", tier = "" } = params;
  const [view, problem] = useLive("name", { name, tier });
  const [isBreaking, setBreaking] = useState(false);
  const [done, setDone] = useState("");
  const back = html`<a class="back" href=${link("names", { tier })}>Names</a>`;
  if (problem) return html`<div class="page"><div class="page-head">${back}<h1 class="mono">${visible(name)}</h1></div><${Trouble} problem=${problem} /></div>`;
  if (!view || view.name !== name) return html`<p class="boot" role="status">Looking …</p>`;
  const isHeld = view.holder_count > 0;
  return html`<div class="page">
    <div class="page-head">${back}<h1 class="mono">${visible(name)}</h1>
      <${Badge} tone=${isHeld ? "good" : view.waiter_count ? "wait" : ""}>${isHeld ? "held" : view.kept ? "kept" : view.delayed_s ? "delayed" : "free"}</${Badge}>
      ${view.waiter_count > 0 && html`<${Badge} tone="wait">${number(view.waiter_count)} waiting</${Badge}>`}
      ${view.shard != null && html`<${Badge}>shard ${view.shard}</${Badge}>`}${tier && html`<${Badge}>${tier}</${Badge}>`}<span class="grow"></span>
      ${view.may_break && isHeld && html`<button type="button" class="button danger" onClick=${() => setBreaking(true)}>Break …</button>`}</div>
    <p class="sentence">${visible(view.sentence)}.</p>
    ${done && html`<p class="banner note" role="status">${done}</p>`}
    <div class="cards wide">
      <${Card} id="holders" title=${view.holder_count > 1 ? "Holders" : "Holder"} count=${view.holder_count > 1 ? view.holder_count : null}><${Holders} view=${view} traceUrl=${who.trace_url} /></${Card}>
      <${Card} id="queue" title="Queue" count=${view.waiter_count}><${Queue} view=${view} tier=${tier} /></${Card}>
    </div>
    <${Card} id="history" title="History"><${History} name=${name} tier=${tier} at=${params.at} stamp=${`${view.holders.map((holder) => holder.fence).join()} ${view.waiter_count}`} events=${view.events} /></${Card}>
    <${Card} id="events" title="Events">
      ${view.events.length ? html`<ul class="events">${view.events.map((event) => html`<${EventRow} key=${eventKey(event)} event=${event} withName=${event.names.length > 1} tier=${tier} />`)}</ul>`
        : html`<${Empty} title="Nothing happened to it lately" />`}</${Card}>
    ${isBreaking && html`<${Break} view=${view} tier=${tier} onClose=${(words) => { setBreaking(false); if (words) setDone(words); }} />`}
  </div>`;
}

function Holders({ view, traceUrl }) {
  if (view.kept && !view.holders.length) return html`<${Empty} title="Kept">For the least time of the run of <${Party} of=${view.kept.client} isShort=${true} />, <${Left} until=${view.kept.until_ms} isLeased=${true} /> more.</${Empty}>`;
  if (!view.holders.length) return html`<${Empty} title=${view.delayed_s ? "Not held yet" : "Free"}>${view.delayed_s ? `It stays ungranted for ${duration(1000 * view.delayed_s)} more, as its last hold ended without a release.` : "The next client that asks for it is granted at once."}</${Empty}>`;
  return html`<div class="holders">${view.holders.slice(0, 20).map((holder) => html`<div class="holder-card" key=${holder.fence}>
    <div class="holder-line"><${Party} of=${holder.client} /><span class="grow"></span><span class="fence big" title="the fence: resources refuse a smaller one">#${holder.fence}</span></div>
    <dl class="facts">
      <div><dt>Held for</dt><dd><${Age} since=${holder.since_ms} /> <span class="dim">since <${When} ms=${holder.since_ms} /></span></dd></div>
      <div><dt>Time left</dt><dd>${holder.until_ms ? html`<${Left} until=${holder.until_ms} isLeased=${true} />` : html`<${Left} until=${holder.expires_ms} ttl=${holder.ttl_ms} />`}</dd></div>
      <div><dt>Mode</dt><dd>${holder.mode}${holder.mode === "permit" ? ` of ${holder.limit}` : ""}</dd></div>
      <div><dt>Client</dt><dd>${holder.connected == null ? "–" : html`<${Badge} tone=${holder.connected ? "good" : "bad"}>${holder.connected ? "connected" : "gone"}</${Badge}>`}</dd></div>
      ${holder.principal && html`<div><dt>Principal</dt><dd>${visible(holder.principal)}</dd></div>`}
      ${holder.trace && html`<div><dt>Trace</dt><dd>${traceUrl ? html`<a href=${traceUrl.replace("{trace}", encodeURIComponent(holder.trace))} target="_blank" rel="noopener noreferrer" class="mono">${visible(holder.trace)}</a>` : html`<code>${visible(holder.trace)}</code>`}</dd></div>`}
      ${holder.meta && typeof holder.meta === "object" && Object.entries(holder.meta).filter(([key]) => !key.startsWith("trace")).slice(0, 12).map(([key, value]) => html`<div key=${key}><dt>${visible(key)}</dt><dd>${visible(String(value))}</dd></div>`)}
      ${typeof holder.meta === "string" && holder.meta && html`<div><dt>Note</dt><dd>${visible(holder.meta)}</dd></div>`}
    </dl></div>`)}
    ${view.holder_count > 20 && html`<p class="dim pad">and ${number(view.holder_count - Math.min(20, view.holders.length))} more</p>`}</div>`;
}

function Queue({ view, tier }) {
  if (!view.waiters.length) return html`<${Empty} title="No waiters" />`;
  return html`<ol class="rows queue">${view.waiters.map((waiter) => html`<li key=${`${waiter.client.session} ${waiter.client.owner}`}>
    <span class="lead figure place">${waiter.place}</span>
    <span class="what"><${Party} of=${waiter.client} />${waiter.names.length > 1 && html`<span class="sub dim">together with ${waiter.names.filter((each) => each !== view.name).slice(0, 3).map((each) => html`<${Name} key=${each} name=${each} tier=${tier} /> `)}</span>`}</span>
    <span class="right-side"><${Age} since=${waiter.since_ms} />${waiter.until_ms ? html`<span class="sub dim">gives up in <${Left} until=${waiter.until_ms} isLeased=${true} /></span>` : ""}</span></li>`)}</ol>
    ${view.waiter_count > view.waiters.length && html`<p class="dim pad">and ${number(view.waiter_count - view.waiters.length)} behind them</p>`}`;
}

// The history by the service; until it is there, and where none is kept, the events of the last minutes.
function History({ name, tier, at, stamp, events }) {
  const [history, setHistory] = useState(null);
  const [trouble, setTrouble] = useState("");
  const [limit, setLimit] = useState(HOLDS_SHOWN);
  useEffect(() => {
    let isOver = false;
    ask(`v1/history/${encodeURIComponent(name)}?${query({ limit, tier })}`).then(
      (said) => { if (!isOver) setHistory(read(said)); },
      (problem) => { if (!isOver) setTrouble(problem.message); },
    );
    return () => { isOver = true; };
  }, [name, tier, stamp, limit]);
  const seen = history ?? fromEvents(events);
  const moment = at ? Date.parse(at) : null;
  return html`${trouble && !history && html`<p class="dim pad">Made of the events of the last minutes: ${trouble}.</p>`}
    <${Timeline} history=${seen} at=${Number.isNaN(moment) ? null : moment} onMore=${history && history.holds.length >= limit ? () => setLimit(limit * 2) : null} />`;
}

const ENDINGS = ["released", "expired", "broken", "revoked"];

export function fromEvents(events) {
  const holds = [], waits = [];
  for (const event of [...events].reverse()) {
    const who = { session: event.client?.session, client: event.client?.name, host: event.client?.host, pid: event.client?.pid, owner: event.client?.owner };
    const waiting = waits.find((wait) => wait.until == null && wait.session === who.session && wait.owner === who.owner);
    if (event.kind === "queued") waits.push({ ...who, since: event.time_ms, until: null, ended: null });
    else if (waiting && ["acquired", "timed_out", "cancelled", "denied", "turned_away", "deadlock"].includes(event.kind)) Object.assign(waiting, { until: event.time_ms, ended: event.kind });
    if (event.kind === "acquired") holds.push({ ...who, fence: event.fence, since: event.time_ms, until: null, ended: null, waited_ms: waiting ? event.time_ms - waiting.since : 0 });
    if (ENDINGS.includes(event.kind)) {
      const hold = holds.find((each) => each.fence === event.fence);
      if (hold) Object.assign(hold, { until: event.time_ms, ended: event.kind, by: event.by?.name });
    }
  }
  return { holds: holds.reverse(), waits, remarks: [], known_since: null };
}

// Breaking a hold: the consequences are shown before, and only users with the right see it.
function Break({ view, tier, onClose }) {
  const now = useNow();
  const [seen] = useState(view);
  const [isSure, setSure] = useState(false);
  const [problem, setProblem] = useState("");
  const holder = seen.holders[0];
  const newest = Math.max(...seen.holders.map((each) => each.fence));
  const next = seen.waiters[0];
  const isOther = view.holders[0]?.fence !== holder.fence;
  const onBreak = async () => {
    try {
      await change("break", { name: seen.name, fence: newest, tier });
      onClose(`The hold with fence ${newest} was broken.`);
    } catch (found) {
      setProblem(found.message);
    }
  };
  return html`<${Dialog} title="Break this hold?" onClose=${() => onClose("")}>
    <p><code class="name">${visible(seen.name)}</code> is held by <${Party} of=${holder.client} /> with fence <b>#${holder.fence}</b> for ${duration(now - holder.since_ms)}${seen.holder_count > 1 ? html`, and by ${seen.holder_count - 1} more` : ""}.</p>
    <ul class="consequences">
      <li>${seen.holder_count > 1 ? "All of them lose" : "It loses"} the lock now and ${seen.holder_count > 1 ? "are" : "is"} told so, but <strong>nothing stops a process that is paused or does not listen</strong>: it may still write.</li>
      <li>${next ? html`<${Party} of=${next.client} /> is next: it is granted at once, with a greater fence${seen.waiter_count > 1 ? html`; ${number(seen.waiter_count - 1)} more wait behind it` : ""}.` : "No client waits: the name becomes free."}</li>
      <li>Resources that check fences refuse what the old holder still sends, once they have seen a greater one. <strong>Those that check none are not protected.</strong></li>
      <li>It is an event, with your name, and in the audit log if the service keeps one.</li>
    </ul>
    ${isOther && html`<p class="banner warn">Meanwhile this hold has ended: only holds up to fence ${newest} are broken, not the one that came after.</p>`}
    <label class="sure"><input type="checkbox" checked=${isSure} onChange=${(event) => setSure(event.target.checked)} /> I have seen to it that the holder is stopped, or that its resource checks fences</label>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <div class="buttons"><button type="button" class="button" onClick=${() => onClose("")}>Keep it</button>
      <button type="button" class="button danger" disabled=${!isSure} onClick=${onBreak}>Break fence #${newest}</button></div>
  </${Dialog}>`;
}
