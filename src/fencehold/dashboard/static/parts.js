// Parts that several views share. Text comes from the service as it is: it is only ever set as text.
import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { link } from "./router.js";
import { age, bothZones, clock, duration, number, useNow } from "./time.js";
import { usePreferences } from "./preferences.js";

// A name as it can be read: what is invisible, or would break the line, is shown as its code.
export function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (letter) =>
    ({ "\n": "\\n", "\r": "\\r", "\t": "\\t" })[letter] ?? `\\u${letter.codePointAt(0).toString(16).padStart(4, "0")}`);
}

export const nameLink = (name, tier) => link("name", { name, tier });

export function Name({ name, tier }) {
  return html`<a class="name" href=${nameLink(name, tier)} title=${visible(name)}>${visible(name)}</a>`;
}

// A task by its name; the number that the client adds to distinguish two of one name is in the tooltip.
export const ownerName = (owner) => visible(owner.replace(/#\d+$/, "") || owner);

// A session by its number. Of several shards, numbers here have that of the shard above 42 bits.
const SHARD = 2 ** 42;
export const wide = (session, shard) => session + shard * SHARD;
export const sessionName = (session) => `session ${session % SHARD}${session < SHARD ? "" : ` of shard ${Math.floor(session / SHARD)}`}`;

// The unique key of an event, over all shards.
export const eventKey = (event) => `${event.shard}-${event.position}-${event.index}-${event.kind}`;

export function Party({ of, isShort }) {
  if (!of) return html`<span class="dim">not known</span>`;
  const where = [of.user && of.host ? `${of.user}@${of.host}` : of.host || of.peer, of.pid ? `pid ${of.pid}` : ""].filter(Boolean).join(" · ");
  return html`<span class="party">
    <a href=${link("session", { session: of.session })} class="party-name">${visible(of.name || of.user || sessionName(of.session))}</a>
    ${of.owner && html`<span class="party-owner" title="the task or thread inside the client: ${visible(of.owner)}">${ownerName(of.owner)}</span>`}
    ${!isShort && where && html`<span class="party-where">${visible(where)}</span>`}
  </span>`;
}

export function Age({ since, className = "" }) {
  const at = useNow();
  return html`<time class="figure ${className}" datetime=${since ? new Date(since).toISOString() : undefined} title=${bothZones(since)}>${age(since, at)}</time>`;
}

export function Left({ until, isLeased, ttl }) {
  const at = useNow();
  if (!until) return html`<span class="dim">–</span>`;
  const left = until - at;
  const tone = left < 0 ? "is-bad" : ttl && left < ttl * 0.34 ? "is-warn" : "";
  const words = isLeased ? "of its own lease" : "until its session ends, unless that is kept alive";
  return html`<span class="figure ${tone}" title="${bothZones(until)}\n${words}">${left < 0 ? "over" : duration(left)}${isLeased ? "" : html`<span class="renewed" aria-label="renewed"> ↻</span>`}</span>`;
}

export function When({ ms, withMs }) {
  usePreferences();
  return html`<time class="figure" datetime=${ms ? new Date(ms).toISOString() : undefined} title=${bothZones(ms)}>${clock(ms, { withMs })}</time>`;
}

export function Badge({ tone = "", children }) {
  return html`<span class="badge ${tone}">${children}</span>`;
}

export function Card({ title, count, more, children, className = "", id }) {
  return html`<section class="card ${className}" aria-labelledby=${id}>
    <header><h2 id=${id}>${title}</h2>${count != null && html`<span class="count">${number(count)}</span>`}<span class="grow"></span>${more}</header>
    ${children}
  </section>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;
}

export function Trouble({ problem }) {
  const hints = {
    DENIED: "Ask an administrator of the policy for the right to observe this name.",
    LIMIT: "Close other dashboards that use this listener, or use another listener.",
    UNREACHED: "",
  };
  return html`<div class="trouble" role="alert"><strong>${problem.status === 403 ? "Not allowed" : "This cannot be shown"}</strong><p>${problem.message}</p><p>${hints[problem.reason] ?? ""}</p></div>`;
}

const KIND_TONES = {
  acquired: "good", released: "", extended: "", queued: "wait", opened: "", session_ended: "", expired: "bad",
  broken: "bad", revoked: "bad", deadlock: "bad", timed_out: "warn", denied: "warn", refused: "warn", turned_away: "warn", suspended: "warn", announced: "warn", map_changed: "warn", slots_forced: "bad", homes_lapsed: "bad", busy: "", policy_changed: "warn", fence_raised: "warn", cancelled: "", gap: "warn",
};

export const kindTone = (kind) => KIND_TONES[kind] ?? "";

export function EventRow({ event, withName = true, tier }) {
  return html`<li class="event">
    <${When} ms=${event.time_ms} withMs=${true} />
    <${Badge} tone=${kindTone(event.kind)}>${event.kind.replaceAll("_", " ")}</${Badge}>
    <span class="event-what">
      ${withName && event.names.slice(0, 3).map((name) => html`<${Name} key=${name} name=${name} tier=${tier} /> `)}
      ${withName && event.names.length + event.more > 3 && html`<span class="dim">and ${event.names.length + event.more - 3} more </span>`}
      ${event.kind === "gap" ? html`<span>events ${event.missing ? `of positions ${number(event.missing[0])} to ${number(event.missing[1])}${event.shard ? ` of shard ${event.shard}` : ""}` : `up to position ${number(event.position)}`} were not kept</span>`
        : event.client && html`<${Party} of=${event.client} isShort=${true} />`}
      ${event.by && html`<span class="dim"> by </span><${Party} of=${event.by} isShort=${true} />`}
      ${event.detail && html`<span class="dim"> ${visible(event.detail)}</span>`}
    </span>
    ${event.fence ? html`<span class="fence" title="fence">#${event.fence}</span>` : html`<span></span>`}
  </li>`;
}

// A dialogue that takes the keyboard focus, and returns it.
export function Dialog({ title, onClose, children }) {
  const box = useRef(null);
  useEffect(() => {
    const element = box.current;
    element.showModal();
    const onCancel = (event) => {
      event.preventDefault();
      onClose();
    };
    element.addEventListener("cancel", onCancel);
    return () => {
      element.removeEventListener("cancel", onCancel);
      element.close();
    };
  }, []);
  return html`<dialog ref=${box} aria-labelledby="dialog-title"><h2 id="dialog-title">${title}</h2>${children}</dialog>`;
}

const ICONS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-4H4zM14 8h6V4h-6z",
  names: "M7 11V8a5 5 0 0 1 10 0v3M5 11h14v9H5zM12 15v2",
  sessions: "M4 5h16v11H4zM9 20h6M12 16v4",
  waits: "M6 6m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0M18 18m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0M18 6m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0M8.5 6h7M18 8.5v7M7.8 7.8l8.4 8.4",
  events: "M4 6h16M4 12h10M4 18h13",
  nodes: "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
  theme: "M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6l1.4 1.4M17 17l1.4 1.4M5.6 18.4 7 17M17 7l1.4-1.4M12 8a4 4 0 1 0 0 8a4 4 0 0 0 0-8",
  search: "M11 4a7 7 0 1 0 0 14a7 7 0 0 0 0-14M16 16l4.5 4.5",
};

export function Icon({ of }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${ICONS[of]} /></svg>`;
}
