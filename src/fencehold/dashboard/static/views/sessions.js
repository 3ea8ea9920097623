// Sessions: every client, what it holds and waits for, and how long it is trusted.
import { useLive } from "../live.js";
import { Age, Badge, Empty, Left, Party, Trouble } from "../parts.js";
import { link, say } from "../router.js";
import { PAGE, VirtualTable } from "../table.js";
import { number } from "../time.js";
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";

const party = (row) => ({ session: row.session, name: row.client, host: row.host, pid: row.pid, user: row.user, peer: row.peer });

const SHARDS = { key: "shards", label: "Shards", className: "extra", cell: (row) => html`<span class="figure">${row.shards?.join(", ")}</span>` };
const COLUMNS = [
  { key: "client", label: "Client", sort: "client", className: "wide", cell: (row) => html`<${Party} of=${party(row)} />` },
  { key: "state", label: "State", cell: (row) => html`<${Badge} tone=${row.connected ? "good" : "bad"}>${row.connected ? "connected" : "gone"}</${Badge}>` },
  { key: "principal", label: "Principal", className: "extra", cell: (row) => row.principal || html`<span class="dim">–</span>` },
  { key: "library", label: "Library", className: "extra", cell: (row) => html`<span class="dim">${[row.library, row.via && `via ${row.via}`].filter(Boolean).join(" · ")}</span>` },
  { key: "age", label: "Open for", sort: "age", className: "right", cell: (row) => html`<${Age} since=${row.since_ms} />` },
  { key: "kept", label: "Last keep-alive", className: "right extra", cell: (row) => html`<${Age} since=${row.kept_alive_ms} />` },
  { key: "left", label: "Trust left", sort: "expires", className: "right", cell: (row) => html`<${Left} until=${row.expires_ms} ttl=${row.ttl_ms} isLeased=${true} />` },
  { key: "holds", label: "Holds", sort: "holds", className: "right", cell: (row) => html`<span class="figure">${number(row.holds)}</span>` },
  { key: "waits", label: "Waits", sort: "waits", className: "right corner", cell: (row) => row.waits ? html`<${Badge} tone="wait">${number(row.waits)}</${Badge}>` : html`<span class="dim">0</span>` },
];

export function Sessions({ params }) {
  const { q = "", tier = "", sort = "age" } = params;
  const [offset, setOffset] = useState(0);
  const [text, setText] = useState(q);
  const timer = useRef(0);
  const [view, problem] = useLive("sessions", { q, tier, sort, offset, count: PAGE });
  useEffect(() => setOffset(0), [q, sort]);
  const onInput = (event) => {
    setText(event.target.value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => say({ q: event.target.value }), 120);
  };
  return html`<div class="page fill">
    <div class="page-head"><h1>Sessions</h1>${view && html`<span class="count" aria-live="polite">${number(view.total)}${view.status.shards > 1 ? " clients" : ""}, ${number(view.connected)} connected</span>`}</div>
    <div class="filters" role="search"><label class="field search"><span>Search sessions</span><input type="search" value=${text} onInput=${onInput} placeholder="client, host, principal, library" spellcheck="false" autocomplete="off" /></label></div>
    ${problem ? html`<${Trouble} problem=${problem} />` : !view ? html`<p class="boot" role="status">Looking …</p>` : view.total
      ? html`<${VirtualTable} label="Sessions" className=${view.status.shards > 1 ? "with-shards" : ""} columns=${view.status.shards > 1 ? [...COLUMNS.slice(0, 2), SHARDS, ...COLUMNS.slice(2)] : COLUMNS} rows=${view.rows} offset=${view.offset} total=${view.total} keyOf=${(row) => row.session}
          href=${(row) => link("session", { session: row.session, tier })} onWindow=${setOffset} sort=${sort} onSort=${(by) => say({ sort: by })} />`
      : html`<${Empty} title=${q ? "No session is found" : "No sessions"}>${q ? "No client, host, principal or library fits." : "A session is opened when a client connects: fencehold.connect(…)"}</${Empty}>`}
  </div>`;
}
