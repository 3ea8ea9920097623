// Addresses that can be shared: every page, filter and moment is in its URL.
import { useEffect, useState } from "./vendor/preact-htm.js";

const BASE = "/dashboard";
const listeners = new Set();

export function here() {
  const page = location.pathname.slice(BASE.length).replace(/^\/|\/$/g, "") || "overview";
  return { page, params: Object.fromEntries(new URLSearchParams(location.search)) };
}

export function link(page, params = {}) {
  const said = Object.entries(params).filter(([, value]) => value !== "" && value != null && value !== false);
  const search = new URLSearchParams(said).toString();
  return `${BASE}/${page === "overview" ? "" : page}${search ? `?${search}` : ""}`;
}

export function go(href, { replace = false } = {}) {
  if (href === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", href);
  if (!replace) window.scrollTo(0, 0);
  for (const listener of listeners) listener(here());
}

// Change some parameters of this page: the last change counts, and "back" leads to the page before.
export function say(changes) {
  const { page, params } = here();
  go(link(page, { ...params, ...changes }), { replace: true });
}

export function useRoute() {
  const [route, setRoute] = useState(here());
  useEffect(() => {
    const onChange = () => setRoute(here());
    listeners.add(setRoute);
    addEventListener("popstate", onChange);
    return () => {
      listeners.delete(setRoute);
      removeEventListener("popstate", onChange);
    };
  }, []);
  return route;
}

// Links inside the dashboard do not load it again.
export function onClick(event) {
  const anchor = event.target.closest?.("a[href]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || anchor.target) return;
  if (anchor.origin !== location.origin || !anchor.pathname.startsWith(BASE)) return;
  event.preventDefault();
  go(anchor.pathname + anchor.search);
}
