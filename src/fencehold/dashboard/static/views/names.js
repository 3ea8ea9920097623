// Names: search as you type, filters and orders, over as many names as there are.
import { useLive } from "../live.js";
import { Age, Badge, Empty, Icon, Left, Name, nameLink, Party, Trouble } from "../parts.js";
import { say } from "../router.js";
import { PAGE, VirtualTable } from "../table.js";
import { number } from "../time.js";
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";

const COLUMNS = (tier, shards) => [
  { key: "name", label: "Name", sort: "name", className: "wide", cell: (row) => html`<${Name} name=${row.name} tier=${tier} />` },
  { key: "holder", label: "Holder", className: "holder", cell: (row) => row.holders ? html`<${Party} of=${row.client} />${row.holders > 1 && html` <${Badge}>+${number(row.holders - 1)}</${Badge}>`}` : html`<span class="dim">not held</span>` },
  { key: "principal", label: "Principal", className: "extra", cell: (row) => row.principal || html`<span class="dim">–</span>` },
  { key: "age", label: "Held for", sort: "age", className: "right", cell: (row) => html`<${Age} since=${row.holders ? row.since_ms : 0} />` },
  { key: "left", label: "Time left", className: "right extra", cell: (row) => html`<${Left} until=${row.holders ? row.until_ms : 0} isLeased=${row.is_leased} />` },
  ...(shards > 1 ? [{ key: "shard", label: "Shard", className: "right extra", cell: (row) => html`<span class="figure dim">${row.shard}</span>` }] : []),
  { key: "mode", label: "Mode", className: "extra", cell: (row) => html`<span class="dim">${row.mode}</span>` },
  { key: "fence", label: "Fence", className: "right", cell: (row) => html`<span class="fence">${row.fence ? `#${row.fence}` : ""}</span>` },
  { key: "queue", label: "Queue", sort: "queue", className: "right corner", cell: (row) => row.waiters ? html`<${Badge} tone="wait">${number(row.waiters)}</${Badge}>` : html`<span class="dim">0</span>` },
];

export function Names({ params }) {
  const { q = "", prefix = "", client = "", state = "", tier = "", sort = "age", reversed = "", focus } = params;
  const [offset, setOffset] = useState(0);
  const wanted = { q, prefix, client, state, tier, sort, reversed };
  const key = JSON.stringify(wanted);
  const [view, problem] = useLive("names", { ...wanted, offset, count: PAGE });
  const [templates, setTemplates] = useState([]);
  useEffect(() => setOffset(0), [key]);
  useEffect(() => { if (view?.templates.length) setTemplates(view.templates); }, [view]);
  const onSort = (by) => say({ sort: by, reversed: by === sort && !reversed ? 1 : "" });
  const filters = [prefix, client, state, q].filter(Boolean).length;
  return html`<div class="page fill">
    <div class="page-head"><h1>Names</h1>${view && html`<span class="count" aria-live="polite">${number(view.total)}${filters ? " found" : ""}</span>`}</div>
    <div class="filters" role="search">
      <${Typed} label="Search names" param="q" value=${q} type="search" hint="text, or a pattern: order:*" hasFocus=${focus} />
      <${Typed} label="Client" param="client" value=${client} hint="client, host or principal" />
      <${Typed} label="Prefix" param="prefix" value=${prefix} hint="billing:" />
      <label class="field"><span>Template</span><select value=${q.includes("*") ? q : ""} onChange=${(event) => say({ q: event.target.value })}>
        <option value="">any name</option>
        ${q.includes("*") && !templates.some(([text]) => text === q) && html`<option value=${q}>${q}</option>`}
        ${templates.filter(([text]) => text.includes("*")).map(([text]) => html`<option key=${text} value=${text}>${text}</option>`)}</select></label>
      <div class="tabs" role="group" aria-label="State">${[["", "all"], ["held", "held"], ["awaited", "awaited"]].map(([value, words]) => html`<button key=${value} type="button" aria-pressed=${state === value} onClick=${() => say({ state: value })}>${words}</button>`)}</div>
      <div class="tabs" role="group" aria-label="Tier">${[["", "correctness"], ["efficiency", "efficiency"]].map(([value, words]) => html`<button key=${value} type="button" aria-pressed=${tier === value} onClick=${() => say({ tier: value })}>${words}</button>`)}</div>
    </div>
    ${problem ? html`<${Trouble} problem=${problem} />` : !view ? html`<p class="boot" role="status">Looking …</p>` : view.total || !view.status.is_loaded
      ? html`<${VirtualTable} label="Names" className=${view.status.shards > 1 ? "with-shards" : ""} columns=${COLUMNS(tier, view.status.shards)} rows=${view.rows} offset=${view.offset} total=${view.total} keyOf=${(row) => row.name}
          href=${(row) => nameLink(row.name, tier)} onWindow=${setOffset} sort=${sort} isReversed=${Boolean(reversed)} onSort=${onSort} />`
      : filters ? html`<${Empty} title="No name is found">Nothing that is held or awaited now fits. <button type="button" class="plain" onClick=${() => say({ q: "", prefix: "", client: "", state: "" })}>Show all names</button></${Empty}>`
        : html`<${Empty} title="Nothing is held">Names are shown while they are held or awaited. Try: <code>fencehold run hello -- sleep 60</code></${Empty}>`}
  </div>`;
}

// A box whose text is part of the address, a moment after the last letter.
function Typed({ label, param, value, type = "text", hint, hasFocus }) {
  const [text, setText] = useState(value);
  const box = useRef(null);
  const timer = useRef(0);
  useEffect(() => { if (document.activeElement !== box.current) setText(value); }, [value]);
  useEffect(() => { if (hasFocus) box.current.focus(); }, []);
  const onInput = (event) => {
    setText(event.target.value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => say({ [param]: event.target.value, focus: "" }), 120);
  };
  return html`<label class="field ${type}"><span>${type === "search" ? html`<${Icon} of="search" />` : ""}${label}</span>
    <input ref=${box} type=${type} value=${text} onInput=${onInput} placeholder=${hint} spellcheck="false" autocomplete="off" autocapitalize="off" /></label>`;
}
