// Times and durations for display, by the service's clock: a browser's own may be minutes off.
import { useEffect, useState } from "./vendor/preact-htm.js";
import { preferences } from "./preferences.js";

let ahead_ms = 0; // By how much the service's clock is ahead of this browser's.

export function heardClock(now_ms) {
  ahead_ms = now_ms - Date.now();
}

export function now() {
  return Date.now() + ahead_ms;
}

const watchers = new Set();
let timer = 0;

function tick() {
  const at = now();
  for (const watcher of watchers) watcher(at);
}

// The time now, again every second: what shows an age is drawn again, even without news. One timer for all.
export function useNow() {
  const [at, setAt] = useState(now());
  useEffect(() => {
    watchers.add(setAt);
    if (watchers.size === 1) timer = setInterval(tick, 1000);
    return () => {
      watchers.delete(setAt);
      if (!watchers.size) clearInterval(timer);
    };
  }, []);
  return Math.max(at, now());
}

export function duration(ms) {
  if (ms == null || Number.isNaN(ms)) return "–";
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function age(since_ms, at) {
  return since_ms ? duration(Math.max(0, at - since_ms)) : "–";
}

const two = (n) => String(n).padStart(2, "0");

// The time of day, with the date if that is another than today; in the zone that was chosen.
export function clock(ms, { withMs = false, zone = preferences().zone, withDate = null } = {}) {
  if (!ms) return "–";
  const at = new Date(ms), today = new Date(now());
  const of = zone === "utc"
    ? (d) => [d.getUTCFullYear(), d.getUTCMonth() + 1, d.getUTCDate(), d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds()]
    : (d) => [d.getFullYear(), d.getMonth() + 1, d.getDate(), d.getHours(), d.getMinutes(), d.getSeconds()];
  const [y, mo, d, h, mi, s] = of(at), day = of(today).slice(0, 3).join();
  const date = withDate ?? [y, mo, d].join() !== day;
  const text = `${two(h)}:${two(mi)}:${two(s)}` + (withMs ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "");
  return (date ? `${y}-${two(mo)}-${two(d)} ` : "") + text + (zone === "utc" ? " UTC" : "");
}

// Both zones, for a tooltip.
export function bothZones(ms) {
  if (!ms) return "";
  return `${clock(ms, { withMs: true, zone: "local", withDate: true })} local\n${clock(ms, { withMs: true, zone: "utc", withDate: true })}`;
}

export function number(n) {
  return n == null ? "–" : Math.round(n).toLocaleString("en-US").replaceAll(",", "\u202f");
}

export function rate(n) {
  return n == null ? "–" : n >= 100 ? number(n) : n >= 10 ? n.toFixed(0) : n.toFixed(1).replace(/\.0$/, "");
}
