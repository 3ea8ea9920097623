// The wait-for graph, drawn: holders on the left, their waiters to the right, and so on.
import { useLive } from "../live.js";
import { Age, Card, Empty, eventKey, EventRow, Name, ownerName, Party, sessionName, Trouble, visible } from "../parts.js";
import { link } from "../router.js";
import { age, number, useNow } from "../time.js";
import { html } from "../vendor/preact-htm.js";

const BOX = { width: 196, height: 48 }, GAP = { x: 150, y: 18 }, MARGIN = 12;

// Columns by how many others a waiter is behind; within a column near to its holders.
export function layout(parties, arrows) {
  const columns = [];
  for (const party of parties) (columns[party.depth] ??= []).push(party);
  const places = new Map();
  columns.forEach((column, depth) => {
    const wanted = (party) => {
      const ys = arrows.filter((arrow) => arrow.from === party.id && places.has(arrow.to)).map((arrow) => places.get(arrow.to).y);
      return ys.length ? ys.reduce((a, b) => a + b, 0) / ys.length : Infinity;
    };
    const ordered = depth ? [...column].sort((a, b) => wanted(a) - wanted(b)) : column;
    let below = MARGIN;
    for (const party of ordered) {
      const y = Math.max(below, depth && wanted(party) !== Infinity ? wanted(party) : 0);
      places.set(party.id, { x: MARGIN + depth * (BOX.width + GAP.x), y });
      below = y + BOX.height + GAP.y;
    }
  });
  const all = [...places.values()];
  return { places, width: Math.max(...all.map(({ x }) => x)) + BOX.width + MARGIN, height: Math.max(...all.map(({ y }) => y)) + BOX.height + MARGIN };
}

export function Waits() {
  const [view, problem] = useLive("graph", {});
  if (problem) return html`<${Trouble} problem=${problem} />`;
  if (!view) return html`<p class="boot" role="status">Looking …</p>`;
  const { parties, arrows, circles, chains, process_circles, refused } = view;
  const by = new Map(parties.map((party) => [party.id, party]));
  return html`<div class="page">
    <div class="page-head"><h1>Who waits for whom</h1><span class="count">${number(arrows.length)} ${arrows.length === 1 ? "waits" : "wait"}${view.hidden ? `, ${number(view.hidden)} more not drawn` : ""}</span></div>
    ${circles.map((circle, at) => html`<p key=${at} class="banner bad">A circle: ${circle.map((id, index) => html`${index ? " → " : ""}<${Party} of=${by.get(id)} isShort=${true} />`)}. None of them continues before one gives up.</p>`)}
    ${process_circles.map((circle, at) => html`<p key=${at} class="banner warn">These processes wait for one another, in different tasks: ${circle.map((party, index) => html`${index ? ", " : ""}<${Party} of=${party} isShort=${true} />`)}. Take their names in one order, or all at once.</p>`)}
    ${parties.length ? html`<${Drawing} parties=${parties} arrows=${arrows} circles=${circles} />` : html`<${Empty} title="No waiters">There is nothing to draw: every acquire is granted as it is asked for.</${Empty}>`}
    <div class="cards wide">
      <${Card} id="chains" title="Long chains" count=${chains.length}>${chains.length ? html`<ul class="rows">${chains.map((chain, at) => html`<li key=${at}><span class="what chain">${chain.parties.map((id, index) => html`
        <${Party} of=${by.get(id)} isShort=${true} />${index < chain.names.length ? html` <span class="dim">waits for</span> <${Name} name=${chain.names[index]} /> <span class="dim">of</span> ` : ""}`)}</span></li>`)}</ul>` : html`<${Empty} title="None">No session waits behind three others.</${Empty}>`}</${Card}>
      <${Card} id="refused" title="Deadlocks refused lately" count=${refused.length}>${refused.length ? html`<ul class="events">${refused.map((event) => html`<${EventRow} key=${eventKey(event)} event=${event} />`)}</ul>`
        : html`<${Empty} title="None">A wait that would close a circle is refused, and shown here.</${Empty}>`}</${Card}>
      ${arrows.length > 0 && html`<${Card} id="list" title="All waits, as a list"><ul class="rows">${arrows.slice(0, 100).map((arrow, at) => html`<li key=${at}><${Age} since=${arrow.since_ms} className="lead" /><span class="what"><${Party} of=${by.get(arrow.from)} isShort=${true} /> <span class="sub"><span class="dim">waits for </span><${Name} name=${arrow.name} /> <span class="dim">of </span><${Party} of=${by.get(arrow.to)} isShort=${true} /></span></span><span class="dim figure">place ${arrow.place}</span></li>`)}</ul></${Card}>`}
    </div></div>`;
}

function cut(text, letters) {
  const seen = visible(text);
  return seen.length > letters ? `${seen.slice(0, letters - 1)}…` : seen;
}

function Drawing({ parties, arrows, circles }) {
  const now = useNow();
  const { places, width, height } = layout(parties, arrows);
  const inCircle = new Set(circles.flat());
  const size = (element) => {
    if (!element) return;
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
  };
  return html`<div class="card drawing scroll" tabindex="0" role="region" aria-label="Drawing: who waits for whom">
    <svg ref=${size} viewBox="0 0 ${width} ${height}" role="group" aria-label="${arrows.length} waits between ${parties.length} tasks; listed below">
      <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" class="tip" /></marker></defs>
      ${arrows.map((arrow, at) => {
        const from = places.get(arrow.from), to = places.get(arrow.to);
        const a = { x: from.x, y: from.y + BOX.height / 2 }, b = { x: to.x + BOX.width, y: to.y + BOX.height / 2 };
        const bend = Math.max(40, Math.abs(a.x - b.x) / 2);
        return html`<g key=${at} class="arrow ${inCircle.has(arrow.from) && inCircle.has(arrow.to) ? "is-circle" : ""}"><path d="M${a.x} ${a.y}C${a.x - bend} ${a.y} ${b.x + bend} ${b.y} ${b.x + 2} ${b.y}" marker-end="url(#tip)" /></g>`;
      })}
      ${/* After all arrows: none goes through a name. */ arrows.map((arrow, at) => {
        const { x, y } = places.get(arrow.from);
        return html`<text key=${`name ${at}`} class="arrow-name" x=${x - 8} y=${y + BOX.height / 2 - 6} text-anchor="end">${cut(arrow.name, 20)}</text>`;
      })}
      ${parties.map((party) => {
        const { x, y } = places.get(party.id);
        const waits = arrows.filter((arrow) => arrow.from === party.id).map((arrow) => arrow.since_ms).filter(Boolean);
        return html`<a key=${party.id} href=${link("session", { session: party.session })}><g class="box ${inCircle.has(party.id) ? "is-circle" : party.depth ? "waits" : "holds"}" transform="translate(${x} ${y})">
          <rect width=${BOX.width} height=${BOX.height} rx="8" /><text x="12" y="20" class="box-name">${cut(party.name || sessionName(party.session), 24)}</text>
          <text x="12" y="37" class="box-sub">${cut([party.owner && ownerName(party.owner), party.host].filter(Boolean).join(" · "), waits.length ? 20 : 28)}</text>
          ${waits.length > 0 && html`<text x=${BOX.width - 10} y="37" text-anchor="end" class="box-age">${age(Math.min(...waits), now)}</text>`}</g></a>`;
      })}
    </svg></div>`;
}
