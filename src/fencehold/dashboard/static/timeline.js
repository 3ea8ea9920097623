// A timeline of holds and waits: who held a name when, and its state at any moment.
import { Badge, Empty, Party, visible, When } from "./parts.js";
import { say } from "./router.js";
import { clock, duration, number, useNow } from "./time.js";
import { html, useState } from "./vendor/preact-htm.js";

const WIDTH = 1000, HOLDS = 34, WAITS = 46;
const TONES = { released: "good", expired: "bad", broken: "bad", revoked: "bad" };
const ENDS = { released: "released", expired: "ran out", broken: "was broken", revoked: "was revoked" };

const ms = (text) => (text ? Date.parse(text) : null);

// The history as received, with times as numbers.
export function read(said) {
  const dated = (each) => ({ ...each, since: ms(each.since), until: ms(each.until) });
  return { ...said, holds: said.holds.map(dated), waits: said.waits.map(dated), remarks: (said.remarks ?? []).map((remark) => ({ ...remark, at: ms(remark.at) })) };
}

const party = (each) => ({ session: each.session, name: each.client, host: each.host, pid: each.pid, owner: each.owner });

export function stateAt(history, at) {
  const during = (each) => each.since <= at && (each.until == null || each.until > at);
  return { holds: history.holds.filter(during), waits: history.waits.filter(during) };
}

export function Timeline({ history, at, onMore }) {
  const now = useNow();
  const starts = [...history.holds, ...history.waits].map((each) => each.since).filter(Boolean);
  const [moved, move] = useState(null);
  if (!starts.length) return html`<${Empty} title="No holds are known">The history of a name begins with the first hold that its node has seen${history.known_since ? `, here ${clock(ms(history.known_since))}` : ""}.</${Empty}>`;
  const from = Math.min(...starts), span = Math.max(1000, now - from);
  const chosen = moved ?? at ?? null;
  const x = (time) => ((time - from) / span) * WIDTH;
  const width = (each) => Math.max(2, x(each.until ?? now) - x(each.since));
  const seen = stateAt(history, chosen ?? now);
  const place = (time) => say({ at: time == null ? "" : new Date(time).toISOString() });
  const step = (by) => {
    const edges = [...new Set([...history.holds, ...history.waits].flatMap((each) => [each.since, each.until ?? now]))].sort((a, b) => a - b);
    const next = by > 0 ? edges.find((edge) => edge > (chosen ?? now)) : edges.findLast((edge) => edge < (chosen ?? now));
    if (next != null) { move(next); place(next); }
  };
  return html`<div class="timeline">
    <svg viewBox="0 0 ${WIDTH} 84" preserveAspectRatio="none" role="img" aria-label="${history.holds.length} holds and ${history.waits.length} waits since ${clock(from)}">
      <rect class="lane" x="0" y="8" width=${WIDTH} height=${HOLDS} />
      ${history.holds.map((hold, index) => html`<rect key=${`${hold.fence} ${hold.since}`} class="hold tone-${TONES[hold.ended] ?? "live"} ${index % 2 ? "odd" : ""}" x=${x(hold.since)} y="8" width=${width(hold)} height=${HOLDS} rx="2">
        <title>${`fence ${hold.fence}: ${hold.client ?? ""} ${clock(hold.since)}, ${hold.until ? `${duration(hold.until - hold.since)}, ${ENDS[hold.ended] ?? hold.ended}` : "still held"}`}</title></rect>`)}
      ${history.waits.map((wait, index) => html`<rect key=${index} class="waited" x=${x(wait.since)} y=${WAITS + 4 + (index % 8) * 4} width=${width(wait)} height="3"><title>${`${wait.client ?? ""} waited ${duration((wait.until ?? now) - wait.since)}`}</title></rect>`)}
      ${history.remarks.map((remark, index) => html`<line key=${`r${index}`} class="remark" x1=${x(remark.at)} x2=${x(remark.at)} y1="2" y2=${WAITS}><title>${remark.text}</title></line>`)}
      ${chosen != null && html`<line class="cursor" x1=${x(chosen)} x2=${x(chosen)} y1="0" y2="84" />`}
    </svg>
    <div class="timeline-axis" aria-hidden="true"><span>${clock(from)}</span><span>${clock(from + span / 2)}</span><span>now</span></div>
    <div class="timeline-slider">
      <button type="button" class="button small" aria-label="The change before" onClick=${() => step(-1)}>‹</button>
      <input type="range" aria-label="Moment" aria-valuetext=${chosen == null ? "now" : clock(chosen, { withMs: true })} min=${from} max=${Math.ceil(from + span)} step="1" value=${chosen ?? now}
        onInput=${(event) => move(Number(event.target.value))} onChange=${(event) => place(Number(event.target.value))} />
      <button type="button" class="button small" aria-label="The change after" onClick=${() => step(1)}>›</button>
      <button type="button" class="button small" disabled=${chosen == null} onClick=${() => { move(null); place(null); }}>now</button>
    </div>
    <p class="moment" aria-live="polite">${chosen == null ? html`<b>Now</b>` : html`<b>At <${When} ms=${chosen} withMs=${true} /></b>`} ${" "}
      ${seen.holds.length ? html`held by ${seen.holds.slice(0, 3).map((hold, index) => html`${index ? ", " : ""}<${Party} of=${party(hold)} isShort=${true} /> <span class="fence">#${hold.fence}</span> for ${duration((chosen ?? now) - hold.since)}`)}${seen.holds.length > 3 ? ` and ${seen.holds.length - 3} more` : ""}` : "not held"};
      ${" "}${seen.waits.length ? html`${number(seen.waits.length)} waited: ${seen.waits.slice(0, 4).map((wait, index) => html`${index ? ", " : ""}<${Party} of=${party(wait)} isShort=${true} />`)}${seen.waits.length > 4 ? " …" : ""}` : "no waiters"}.</p>
    ${history.remarks.map((remark, index) => html`<p key=${index} class="banner ${remark.kind === "gap" ? "note" : "warn"}"><${When} ms=${remark.at} /> ${remark.text}</p>`)}
    <div class="scroll" tabindex="0" role="region" aria-label="Holds"><table class="plain-table">
      <thead><tr><th>Since</th><th>Held for</th><th>Fence</th><th>Who</th><th class="extra">Principal</th><th>Waited</th><th>Ended</th></tr></thead>
      <tbody>${history.holds.map((hold) => html`<tr key=${`${hold.fence} ${hold.since}`} class=${seen.holds.includes(hold) ? "is-chosen" : ""}>
        <td><${When} ms=${hold.since} withMs=${true} /></td><td class="figure">${duration((hold.until ?? now) - hold.since)}</td><td class="fence">#${hold.fence}</td>
        <td><${Party} of=${party(hold)} /></td><td class="extra">${visible(hold.principal ?? "") || "–"}</td><td class="figure">${hold.waited_ms ? duration(hold.waited_ms) : "–"}</td>
        <td><${Badge} tone=${TONES[hold.ended] ?? "live"}>${hold.ended ? ENDS[hold.ended] ?? hold.ended : "held"}</${Badge}>${hold.by && html`<span class="dim"> by ${visible(typeof hold.by === "string" ? hold.by : hold.by.client ?? "")}</span>`}</td></tr>`)}</tbody>
    </table></div>
    ${onMore && html`<button type="button" class="button small" onClick=${onMore}>Earlier holds</button>`}
  </div>`;
}
