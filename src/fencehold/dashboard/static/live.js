// Views that stay live: a stream for each, reopened by itself, closed while the page is hidden.
import { useEffect, useState } from "./vendor/preact-htm.js";
import { ask, Problem, query } from "./api.js";
import { heardClock } from "./time.js";

const listeners = new Set();
let connection = { state: "connecting", status: null };

// The state of the newest stream, for the sign in the header.
export function useConnection() {
  const [seen, see] = useState(connection);
  useEffect(() => {
    listeners.add(see);
    see(connection);
    return () => listeners.delete(see);
  }, []);
  return seen;
}

function tell(changes) {
  connection = { ...connection, ...changes };
  for (const listener of listeners) listener(connection);
}

export const signedOut = { on: () => {} };

export function follow(view, params, onView, onProblem) {
  let source = null, timer = 0, pause_ms = 500, isOver = false;

  function open() {
    if (isOver || source) return;
    source = new EventSource(`/dashboard/api/live/${view}?${query(params)}`);
    source.onmessage = (message) => {
      const said = JSON.parse(message.data);
      heardClock(said.now_ms);
      pause_ms = 500;
      const stale = said.view.status.stale_s > 0;
      tell({ state: stale ? "stale" : "live", status: said.view.status });
      onView(said.view);
    };
    source.addEventListener("trouble", (message) => tell({ state: "stale", why: JSON.parse(message.data) }));
    source.addEventListener("problem", (message) => {
      const { status, reason, detail } = JSON.parse(message.data);
      close();
      onProblem(new Problem(status, reason, detail));
    });
    source.addEventListener("over", () => {
      close();
      signedOut.on();
      // If a user is signed in all the same, this page is still there then, and continues.
      timer = setTimeout(find, 1000);
    });
    source.onerror = () => {
      // The browser retries by itself, unless the answer was an error: then that is fetched.
      close();
      tell({ state: "broken" });
      timer = setTimeout(find, pause_ms);
      pause_ms = Math.min(5000, pause_ms * 2);
    };
  }

  async function find() {
    try {
      onView(await askView(view, params));
    } catch (problem) {
      if (isOver) return;
      if (problem.isSignIn) return signedOut.on();
      if (problem.status >= 400 && problem.status < 500) return onProblem(problem);
      tell({ state: "broken", why: problem.message });
      timer = setTimeout(find, pause_ms);
      pause_ms = Math.min(5000, pause_ms * 2);
      return;
    }
    open();
  }

  function close() {
    source?.close();
    source = null;
  }

  function onVisibility() {
    // A browser has six connections to one host: hidden tabs leave theirs to others.
    if (document.hidden) close();
    else if (!source) open();
  }

  document.addEventListener("visibilitychange", onVisibility);
  if (!document.hidden) open();
  return () => {
    isOver = true;
    clearTimeout(timer);
    close();
    document.removeEventListener("visibilitychange", onVisibility);
  };
}

export async function askView(view, params) {
  const said = await ask(`view/${view}?${query(params)}`);
  heardClock(said.now_ms);
  return said.view;
}

// The data of a view, kept up to date: [view, problem]. While parameters change, the last view stays.
export function useLive(view, params) {
  const [seen, see] = useState(null);
  const [problem, setProblem] = useState(null);
  const key = `${view}?${query(params)}`;
  useEffect(() => {
    setProblem(null);
    return follow(view, params, see, setProblem);
  }, [key]);
  return [seen, problem];
}
