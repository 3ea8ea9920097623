// What this browser remembers: theme, time zone, how far back charts go. Kept here only, never sent anywhere.
import { useEffect, useState } from "./vendor/preact-htm.js";

const KEY = "fencehold.preferences";
const listeners = new Set();
let current = { theme: "system", zone: "local", span_s: 300, ...stored() };

function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}");
  } catch {
    return {}; // Storage may be forbidden, or hold something else.
  }
}

export function preferences() {
  return current;
}

export function prefer(changes) {
  current = { ...current, ...changes };
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // It lasts as long as the page, then.
  }
  apply();
  for (const listener of listeners) listener(current);
}

export function usePreferences() {
  const [seen, see] = useState(current);
  useEffect(() => {
    listeners.add(see);
    return () => listeners.delete(see);
  }, []);
  return seen;
}

export function apply() {
  if (current.theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = current.theme;
}

export function nextTheme() {
  const order = ["system", "light", "dark"];
  prefer({ theme: order[(order.indexOf(current.theme) + 1) % order.length] });
}

export function nextZone() {
  prefer({ zone: current.zone === "utc" ? "local" : "utc" });
}
