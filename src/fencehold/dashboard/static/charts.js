// Charts as SVG: lines over time, with a text description for screen readers.
import { html, useRef, useState } from "./vendor/preact-htm.js";
import { clock, number, rate } from "./time.js";

const WIDTH = 320, HEIGHT = 96, TOP = 8, BOTTOM = 4;

function points(values, most) {
  const step = WIDTH / Math.max(1, values.length - 1);
  const runs = [];
  let run = [];
  values.forEach((value, at) => {
    if (value == null) {
      if (run.length) runs.push(run);
      run = [];
    } else run.push([at * step, HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM)]);
  });
  if (run.length) runs.push(run);
  return runs;
}

const path = (run) => run.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const area = (run) => `${path(run)}L${run.at(-1)[0].toFixed(1)} ${HEIGHT}L${run[0][0].toFixed(1)} ${HEIGHT}Z`;

function top(series) {
  const most = Math.max(1, ...series.flatMap(({ values }) => values.filter((value) => value != null)));
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((factor) => factor * power).find((nice) => nice >= most);
}

const last = (values) => values.findLast((value) => value != null) ?? null;

// `series`: [{ label, values, tone }]; `until` seconds since 1970, and a step in seconds.
export function Chart({ title, unit, series, until, step, isRate }) {
  const [at, setAt] = useState(null);
  const box = useRef(null);
  const shown = isRate ? rate : number;
  const most = top(series);
  const count = series[0].values.length;
  const words = series.map(({ label, values }) => `${label} ${shown(last(values))}`).join(", ");
  const onMove = (event) => {
    const { left, width } = box.current.getBoundingClientRect();
    const place = Math.round(((event.clientX - left) / width) * (count - 1));
    setAt(Math.max(0, Math.min(count - 1, place)));
  };
  const when = at == null ? null : (until - (count - 1 - at) * step) * 1000;
  return html`<figure class="chart">
    <figcaption>
      <span class="chart-title">${title}</span>
      <span class="chart-values">${series.map(({ label, values, tone }) => html`<span class="chart-value" key=${label}>
        <i class="dot tone-${tone}"></i>${label} <b>${shown(at == null ? last(values) : values[at])}</b>${unit}</span>`)}</span>
    </figcaption>
    <div class="chart-box" ref=${box} onPointerMove=${onMove} onPointerLeave=${() => setAt(null)}>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${title}: ${words} ${unit}">
        <line class="grid" x1="0" x2=${WIDTH} y1=${TOP} y2=${TOP} />
        <line class="grid" x1="0" x2=${WIDTH} y1=${(TOP + HEIGHT - BOTTOM) / 2} y2=${(TOP + HEIGHT - BOTTOM) / 2} />
        ${series.map(({ label, values, tone }, index) => points(values, most).map((run, part) => html`
          ${index === 0 && html`<path key="area-${label}-${part}" class="area tone-${tone}" d=${area(run)} />`}
          <path key="line-${label}-${part}" class="line tone-${tone}" d=${path(run)} />`))}
        ${at != null && html`<line class="cursor" x1=${(at * WIDTH) / (count - 1)} x2=${(at * WIDTH) / (count - 1)} y1="0" y2=${HEIGHT} />`}
      </svg>
      <span class="chart-top" aria-hidden="true">${shown(most)}</span>
    </div>
    <div class="chart-axis" aria-hidden="true"><span>${clock((until - count * step) * 1000)}</span><span>${when ? clock(when) : ""}</span><span>now</span></div>
  </figure>`;
}
