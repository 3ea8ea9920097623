// A table with virtual rows: only those that are seen exist, however many there are.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { useKey } from "./keys.js";
import { go } from "./router.js";

const HEIGHT_MAX = 8_000_000; // Beyond some millions of pixels browsers lay out nothing: then a scroll step is several rows.
const SPARE = 12;

export const PAGE = 80;

// `columns`: [{ key, label, sort, cell(row), className }]; `rows` begin at `offset` of `total`; `onWindow(offset)` asks for others.
export function VirtualTable({ label, columns, rows, offset, total, href, keyOf, onWindow, sort, isReversed, onSort, className = "" }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600, rowHeight: 44 });
  const [chosen, choose] = useState(-1);
  const { rowHeight } = view;
  const full = total * rowHeight;
  const height = Math.min(full, HEIGHT_MAX);
  const room = Math.max(1, height - view.height);
  const firstExact = full <= HEIGHT_MAX ? view.top / rowHeight : (view.top / room) * Math.max(0, total - view.height / rowHeight);
  const first = Math.max(0, Math.floor(firstExact));
  const seen = Math.ceil(view.height / rowHeight) + 1;
  const shift = full <= HEIGHT_MAX ? first * rowHeight : view.top - (firstExact - first) * rowHeight;

  useLayoutEffect(() => {
    const element = box.current;
    const measure = () => {
      const rowHeight = parseFloat(getComputedStyle(element).getPropertyValue("--row-height")) || 44;
      setView((before) => ({ ...before, top: element.scrollTop, height: element.clientHeight, rowHeight }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);

  useEffect(() => {
    const wanted = Math.max(0, first - SPARE);
    const isThere = first >= offset && Math.min(total, first + seen) <= offset + PAGE;
    if (isThere) return undefined;
    const timer = setTimeout(() => onWindow(wanted), 60);
    return () => clearTimeout(timer);
  }, [first, seen, offset, total]);

  const move = (by) => {
    const next = Math.max(0, Math.min(total - 1, (chosen < 0 ? first - (by > 0 ? 1 : 0) : chosen) + by));
    choose(next);
    const element = box.current;
    if (full <= HEIGHT_MAX) {
      if (next * rowHeight < element.scrollTop) element.scrollTop = next * rowHeight;
      else if ((next + 1) * rowHeight > element.scrollTop + element.clientHeight) element.scrollTop = (next + 1) * rowHeight - element.clientHeight;
    } else element.scrollTop += by * Math.max(1, (rowHeight * height) / full);
  };
  useKey("j", () => move(1), [chosen, total, first, view]);
  useKey("k", () => move(-1), [chosen, total, first, view]);
  useKey("ArrowDown", () => move(1), [chosen, total, first, view]);
  useKey("ArrowUp", () => move(-1), [chosen, total, first, view]);
  useKey("Enter", () => {
    const row = rows[chosen - offset];
    if (row) go(href(row));
  }, [chosen, rows, offset]);

  const drawn = [];
  for (let at = first; at < Math.min(total, first + seen); at++) drawn.push([at, rows[at - offset]]);

  return html`<div class="table ${className}" role="table" aria-label=${label} aria-rowcount=${total + 1}>
    <div class="table-head" role="rowgroup"><div class="tr" role="row" aria-rowindex="1">${columns.map((column) => html`
      <span key=${column.key} role="columnheader" class="td ${column.className ?? ""}"
        aria-sort=${column.sort && column.sort === sort ? (isReversed ? "descending" : "ascending") : undefined}>
        ${column.sort ? html`<button type="button" class="sort" onClick=${() => onSort(column.sort)}>${column.label}
          <span aria-hidden="true" class="arrow">${column.sort === sort ? (isReversed ? "▼" : "▲") : ""}</span></button>` : column.label}
      </span>`)}</div></div>
    <div class="table-body" ref=${box} tabindex="0" role="rowgroup" aria-label="${label}: rows">
      <div class="table-space" ref=${(element) => element && (element.style.height = `${height}px`)} role="presentation">
        <div class="table-rows" ref=${(element) => element && (element.style.transform = `translateY(${shift}px)`)} role="presentation">
          ${drawn.map(([at, row]) => html`<div class="tr ${at === chosen ? "is-chosen" : ""} ${row?.tone ?? ""}" role="row"
              key=${row ? keyOf(row) : `empty-${at}`} aria-rowindex=${at + 2} onClick=${(event) => row && !event.target.closest("a, button") && go(href(row))}>
            ${row ? columns.map((column) => html`<span key=${column.key} role="cell" class="td ${column.className ?? ""}" data-label=${column.label}>${column.cell(row)}</span>`)
              : html`<span class="td wait" role="cell">…</span>`}
          </div>`)}
        </div>
      </div>
    </div>
  </div>`;
}
