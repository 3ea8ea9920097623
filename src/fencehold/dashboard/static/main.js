// The dashboard: the signed-in user, the frame around every page, and which page it is.
import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { change, session } from "./api.js";
import { KEYS, useKey } from "./keys.js";
import { signedOut, useConnection, useLive } from "./live.js";
import { Dialog, Icon } from "./parts.js";
import { apply, nextTheme, nextZone, usePreferences } from "./preferences.js";
import { go, link, onClick, useRoute } from "./router.js";
import { clock, duration, number } from "./time.js";
import { Events } from "./views/events.js";
import { NameView } from "./views/name.js";
import { Names } from "./views/names.js";
import { Nodes } from "./views/nodes.js";
import { Overview } from "./views/overview.js";
import { SessionView } from "./views/session.js";
import { Sessions } from "./views/sessions.js";
import { SignIn } from "./views/sign_in.js";
import { Waits } from "./views/waits.js";

const PAGES = [
  ["overview", "Overview"], ["names", "Names"], ["sessions", "Sessions"], ["waits", "Waits"], ["events", "Events"], ["nodes", "Nodes"],
];
const VIEWS = { overview: Overview, names: Names, name: NameView, sessions: Sessions, session: SessionView, waits: Waits, events: Events, nodes: Nodes };
const UNDER = { name: "names", session: "sessions" };

function App() {
  const route = useRoute();
  const [who, setWho] = useState(null);
  const [problem, setProblem] = useState(null);
  const [isHelp, setHelp] = useState(false);

  const find = async () => {
    try {
      setWho(await session());
      setProblem(null);
    } catch (found) {
      setWho(null);
      setProblem(found);
      // An operator may start what is missing: try again.
      if (!found.isSignIn) setTimeout(find, 2000);
    }
  };
  useEffect(() => {
    signedOut.on = find;
    find();
  }, []);
  PAGES.forEach(([page], at) => useKey(String(at + 1), () => go(link(page))));
  useKey("?", () => setHelp(true));
  useKey("t", nextTheme);
  useKey("u", nextZone);
  useKey("Backspace", () => history.back());
  useKey("/", () => {
    const box = document.querySelector("input[type=search]");
    if (box) box.focus();
    else go(link("names", { focus: 1 }));
  });

  const View = VIEWS[route.page];
  const title = PAGES.find(([page]) => page === (UNDER[route.page] ?? route.page))?.[1] ?? "Not found";
  useEffect(() => {
    document.title = `${route.params.name ?? title} · Fencehold`;
  }, [route.page, route.params.name]);

  if (problem?.isSignIn) return html`<${SignIn} onDone=${find} />`;
  if (problem) return html`<main class="alone"><div class="trouble" role="alert"><strong>The service is not reached</strong><p>${problem.message}</p>
    <p>Start it with <code>fencehold serve --http 7422</code>, or point this listener elsewhere with <code>--url</code>. This page looks for it every two seconds.</p></div></main>`;
  if (!who) return html`<p class="boot" role="status">Fencehold …</p>`;
  return html`<div class="frame" onClick=${onClick}>
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the page</a>
    <nav class="side" aria-label="Pages">
      <a class="brand" href=${link("overview")}><img src="/dashboard/static/icon.svg" alt="" width="28" height="28" /><span>Fencehold</span></a>
      <ul>${PAGES.map(([page, words], at) => html`<li key=${page}><a href=${link(page)} aria-current=${(UNDER[route.page] ?? route.page) === page ? "page" : undefined}
        title="${words} (${at + 1})"><${Icon} of=${page} /><span>${words}</span></a></li>`)}</ul>
      <${Foot} who=${who} onHelp=${() => setHelp(true)} onOut=${async () => { await change("sign-out", {}); find(); }} />
    </nav>
    <div class="body">
      <${Banner} />
      <main id="main" tabindex="-1">${View
        ? html`<${View} key=${route.page} params=${route.params} who=${who} />`
        : html`<${NotFound} />`}</main>
    </div>
    ${isHelp && html`<${Dialog} title="Keys" onClose=${() => setHelp(false)}>
      <dl class="keys">${KEYS.map(([key, words]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${words}</dd></div>`)}</dl>
      <div class="buttons"><button type="button" class="button" onClick=${() => setHelp(false)}>Close</button></div></${Dialog}>`}
  </div>`;
}

function NotFound() {
  useLive("overview", { span_s: 90 }); // Shows in the header how current the data is.
  return html`<div class="page"><div class="page-head"><h1>There is no such page</h1></div>
    <p>The address may have been cut when it was copied. <a href=${link("overview")}>To the overview</a>, or <a href=${link("names")}>look for a name</a>.</p></div>`;
}

function Foot({ who, onHelp, onOut }) {
  const { theme, zone } = usePreferences();
  const [isOpen, setOpen] = useState(false); // On a small screen, where there is no room for all of it.
  return html`<div class="foot ${isOpen ? "is-open" : ""}">
    <div class="foot-line"><${Live} /><button type="button" class="foot-more" aria-expanded=${isOpen} aria-controls="foot-panel" aria-label="Display and account" onClick=${() => setOpen(!isOpen)}>⋯</button></div>
    <div class="foot-panel" id="foot-panel">
    <div class="foot-buttons">
      <button type="button" onClick=${nextTheme} title="theme (t)" aria-label="Theme: ${theme}"><${Icon} of="theme" /><span>${theme}</span></button>
      <button type="button" onClick=${nextZone} title="local time or UTC (u)" aria-label="Times: ${zone}"><span>${zone === "utc" ? "UTC" : "local"}</span></button>
      <button type="button" onClick=${onHelp} title="keys (?)" aria-label="Keys"><span>?</span></button>
    </div>
    <p class="who">${who.is_signed_in
      ? html`<span title=${who.roles.join(", ")}>${who.principal}</span> ${who.is_by_certificate
        ? html`<span class="dim" title="Your browser shows a certificate; close it to show none">by certificate</span>`
        : html`<button type="button" class="plain" onClick=${onOut}>sign out</button>`}`
      : html`<span class="dim">not signed in</span>`}</p>
    <p class="dim version">${who.version}</p>
    </div>
  </div>`;
}

const STATES = { connecting: "connecting", live: "live", stale: "stale", broken: "reconnecting" };

function Live() {
  const { state, status } = useConnection();
  const words = status && state === "live" && status.is_sampled ? "sampled" : STATES[state];
  return html`<p class="live is-${state}" role="status" title=${status ? status.shards > 1 ? `${status.shards} shards; their positions, added up` : `position ${status.position}, epoch ${status.epoch}` : ""}>
    <i class="pulse"></i><span>${words}</span>${status && html`<span class="position figure">@${number(status.position)}</span>`}</p>`;
}

const ADVICE = "A new leader may be taking over: this page continues by itself. If it lasts, check the nodes and the engine of their journal.";

// Since when the service is not reachable, why, and what to do. Without a status, since the page was opened.
function staleWords(status, why) {
  const reason = status?.stale_s ? status.trouble : why;
  const said = reason ? `${reason[0].toUpperCase()}${reason.slice(1)}. ` : "";
  const since = status?.stale_s ? `The service has not answered for ${duration(1000 * status.stale_s)}: what you see is older than that. ` : "";
  return since + said + ADVICE;
}

// What a user must know before trusting what is shown.
function Banner() {
  const { state, status, why } = useConnection();
  const [seenGap, seeGap] = useState("");
  const gap = status?.gap ? `${status.gap[0]}–${status.gap[1]}${status.shards > 1 ? ` of shard ${status.gap[2]}` : ""}` : "";
  const lines = [];
  if (state === "broken") lines.push(["bad", why ?? "The connection to this listener was lost. What you see is the last that was heard; it is tried again."]);
  else if (state === "stale") lines.push(["warn", staleWords(status, why)]);
  for (const { shard, why, for_s } of status?.away ?? []) lines.push(["warn", `Shard ${shard} has been away for ${duration(1000 * for_s)}: what is shown of its names and sessions is of before. The others are live. ${why}`]);
  if (status?.is_sampled) lines.push(["note", `Too much happens to tell each event, or you may not be told them: names are as of ${clock(status.listed_ms)}.`]);
  if (status && !status.is_loaded) lines.push(["note", `Reading the names: ${number(status.loaded)} of about ${number(status.names)} so far. Orders and counts are of these.`]);
  if (status?.is_cut) lines.push(["note", "There are more names than this listener keeps: the first million, by name, are shown."]);
  if (gap && gap !== seenGap) lines.push(["warn", html`Events of positions ${gap} were missed; the names were read again since. <button type="button" class="plain" onClick=${() => seeGap(gap)}>dismiss</button>`]);
  if (!lines.length) return null;
  return html`<div class="banners" role="status">${lines.map(([tone, words], at) => html`<p key=${at} class="banner ${tone}">${words}</p>`)}</div>`;
}

apply();
document.getElementById("app").textContent = "";
render(html`<${App} />`, document.getElementById("app"));
