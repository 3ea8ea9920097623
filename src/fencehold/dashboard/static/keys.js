// Keyboard shortcuts: one letter each, never while the user types.
import { useLayoutEffect } from "./vendor/preact-htm.js";

const bound = new Map();

export const KEYS = [
  ["1 – 6", "overview, names, sessions, waits, events, nodes"],
  ["/", "search"],
  ["↑ ↓ or j k", "move in a list"],
  ["Enter", "open what is chosen"],
  ["Backspace", "back"],
  ["t", "theme: as the system, light, dark"],
  ["u", "times: local or UTC"],
  ["?", "this list"],
  ["Esc", "close"],
];

// Bound as soon as it is drawn: a key that follows another at once finds what that one did.
export function useKey(key, run, deps = []) {
  useLayoutEffect(() => {
    bound.set(key, run);
    return () => {
      if (bound.get(key) === run) bound.delete(key);
    };
  }, deps);
}

export function isTyping(target) {
  return target?.closest?.("input, textarea, select, [contenteditable]") != null;
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const run = bound.get(event.key);
  if (run) {
    event.preventDefault();
    run(event);
  }
});
