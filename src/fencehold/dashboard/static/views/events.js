// Events: everything that happens, from a position on; the browser resumes after the last one it received.
import { ask, query } from "../api.js";
import { signedOut, useLive } from "../live.js";
import { Empty, eventKey, EventRow, wide } from "../parts.js";
import { say } from "../router.js";
import { number } from "../time.js";
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";

const SHOWN = 300, DRAW_MS = 250;
const KINDS = ["acquired", "queued", "released", "extended", "expired", "broken", "revoked", "timed_out", "cancelled", "denied", "turned_away", "deadlock", "busy", "refused", "opened", "suspended", "session_ended", "announced", "policy_changed", "limits_set", "fence_raised",
  "map_changed", "slots_closed", "slots_opened", "slots_forced", "home_closing", "home_closed", "home_opened", "homes_lapsed", "homes_resumed"];

// An event of `/v1/events` as other views have theirs.
function shown(said) {
  const shard = said.shard ?? 0;
  const client = said.client && { session: wide(said.client.session, shard), name: said.client.name, host: said.client.host, pid: said.client.pid, owner: said.client.owner ?? "" };
  return { kind: said.kind, shard, position: said.position, index: said.index ?? 0, names: said.names ?? [], more: 0, fence: said.fence ?? 0, detail: said.detail ?? "",
    time_ms: said.time ? Date.parse(said.time) : 0, client: client || null, by: said.by && { session: said.by.session, name: said.by.name, host: said.by.host, pid: said.by.pid, owner: "" },
    missing: said.missing ? [said.missing.from, said.missing.to] : null };
}

// Positions of one shard give the order; between two shards, the wall-clock time has to do.
const later = (a, b) => a.shard === b.shard ? b.position - a.position || b.index - a.index : b.time_ms - a.time_ms;

// Two lists, newest first, as one.
export function merged(events, more) {
  const known = new Set(events.map(eventKey));
  const all = [...events, ...more.filter((event) => !known.has(eventKey(event)))];
  return all.sort(later).slice(0, SHOWN);
}

export function Events({ params }) {
  const { prefix = "", kind = "", tier = "" } = params;
  const [events, setEvents] = useState([]);
  const [isPaused, setPaused] = useState(false);
  const [state, setState] = useState("connecting");
  const [missed, setMissed] = useState(0);
  const [away, setAway] = useState([]);
  const paused = useRef(false);
  useLive("overview", { span_s: 90, tier }); // Shows in the header how current the data is.
  paused.current = isPaused;
  useEffect(() => {
    let waiting = [], isOver = false;
    setEvents([]);
    const source = new EventSource(`/dashboard/api/v1/events?${query({ prefix, tier })}`);
    const take = (message) => waiting.push(shown(JSON.parse(message.data)));
    source.onopen = () => {
      setState("live");
      setAway([]); // Each stream reports again which shards it lacks.
      // What happened just before: fetched now, so that nothing is missed in between.
      ask(`view/overview?${query({ tier, span_s: 90 })}`).then(({ view }) => {
        const known = view.events.filter((event) => !prefix || event.names.some((name) => name.startsWith(prefix)));
        if (!isOver) setEvents((now) => merged(now, known));
      }, () => {});
    };
    source.onmessage = take;
    for (const each of [...KINDS, "gap"]) source.addEventListener(each, take);
    const shardOf = (message) => JSON.parse(message.data).shard;
    const without = (shards, shard) => shards.filter((each) => each !== shard);
    source.addEventListener("shard_away", (message) => setAway((now) => [...without(now, shardOf(message)), shardOf(message)].sort((a, b) => a - b)));
    source.addEventListener("shard_back", (message) => setAway((now) => without(now, shardOf(message))));
    source.onerror = async () => {
      setState("broken");
      if (source.readyState === EventSource.CLOSED) {
        try {
          await ask("session");
        } catch (problem) {
          if (problem.isSignIn) return signedOut.on();
        }
        setState("refused");
      }
    };
    const timer = setInterval(() => {
      if (!waiting.length) return;
      const came = waiting.slice(-SHOWN).reverse();
      if (paused.current) setMissed((count) => count + waiting.length);
      else setEvents((before) => merged(came, before));
      waiting = [];
    }, DRAW_MS);
    return () => {
      isOver = true;
      clearInterval(timer);
      source.close();
    };
  }, [prefix, tier]);
  const found = events.filter((event) => !kind || event.kind === kind || event.kind === "gap");
  return html`<div class="page">
    <div class="page-head"><h1>Events</h1><span class="count">${{ live: "as they happen", refused: "" }[state] ?? "reconnecting: resumes after the last one"}</span></div>
    <div class="filters" role="search">
      <label class="field search"><span>Names that begin with</span><input type="search" value=${prefix} onChange=${(event) => say({ prefix: event.target.value })} placeholder="all names" spellcheck="false" autocomplete="off" /></label>
      <label class="field"><span>Kind</span><select value=${kind} onChange=${(event) => say({ kind: event.target.value })}><option value="">all</option>${KINDS.map((each) => html`<option key=${each} value=${each}>${each.replaceAll("_", " ")}</option>`)}</select></label>
      <button type="button" class="button" aria-pressed=${isPaused} onClick=${() => { setPaused(!isPaused); setMissed(0); }}>${isPaused ? `Continue${missed ? ` (${number(missed)} passed)` : ""}` : "Pause"}</button>
    </div>
    ${away.length > 0 && html`<p class="banner warn" role="status">No events from shard${away.length > 1 ? "s" : ""} ${away.join(", ")}: ${away.length > 1 ? "they do" : "it does"} not answer. What happened there is shown when ${away.length > 1 ? "they are" : "it is"} back.</p>`}
    ${state === "refused" ? html`<div class="trouble" role="alert"><strong>Events are not told</strong><p>This user may not be told events of these names, or too many watch by this listener. Ask for the right <code>events</code>, or say a prefix that you may watch.</p></div>`
      : found.length ? html`<ul class="events card">${found.map((event) => html`<${EventRow} key=${eventKey(event)} event=${event} tier=${tier} />`)}</ul>`
      : html`<${Empty} title="Nothing yet">Events are shown as they happen${prefix ? html`, of names that begin with <code>${prefix}</code>` : ""}.</${Empty}>`}
  </div>`;
}
