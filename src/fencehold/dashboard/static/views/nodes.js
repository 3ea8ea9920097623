// Nodes: the leader, how far the others are, and the health of the journal's engine.
import { useLive } from "../live.js";
import { Badge, Card, Empty, Trouble, visible } from "../parts.js";
import { duration, number } from "../time.js";
import { html } from "../vendor/preact-htm.js";

export function Nodes() {
  const [view, problem] = useLive("overview", { span_s: 90 });
  if (problem) return html`<${Trouble} problem=${problem} />`;
  if (!view) return html`<p class="boot" role="status">Looking …</p>`;
  return html`<div class="page">
    <div class="page-head"><h1>Nodes</h1></div>
    ${view.remarks.map((remark, at) => html`<p key=${at} class="banner ${remark.level}">${remark.text}</p>`)}
    <div class="cards wide">
      <${Card} id="nodes" title="Nodes"><${NodeList} nodes=${view.nodes} server=${view.server} /></${Card}>
      <${Card} id="engine" title="Journal"><${Engine} health=${view.health} server=${view.server} /></${Card}>
      ${view.shards && html`<${Card} id="shards" title="Shards" count=${view.shards.length}><${ShardList} shards=${view.shards} /></${Card}>`}
      ${view.sinks.length > 0 && html`<${Card} id="sinks" title="Sinks" count=${view.sinks.length}><ul class="rows">${view.sinks.map((sink) => html`<li key=${sink.name}><${Badge} tone=${sink.up ? "good" : "bad"}>${sink.up ? "delivers" : "stuck"}</${Badge}>
        <span class="what"><strong>${visible(sink.name)}</strong><span class="sub dim">${number(sink.delivered_total)} delivered, ${number(sink.waiting)} waiting</span></span><span class="figure ${sink.lag_seconds > 10 ? "is-warn" : "dim"}">${sink.lag_positions ? `${number(sink.lag_positions)} behind` : sink.up ? "in step" : ""}</span></li>`)}</ul></${Card}>`}
    </div>
  </div>`;
}

export function NodeList({ nodes, server, isShort }) {
  if (!nodes) return html`<${Empty} title="For administrators">Nodes are shown to users with the right <code>admin</code>.</${Empty}>`;
  return html`<ul class="rows nodes">${nodes.map((node) => html`<li key=${node.address || node.node || "self"}>
    <${Badge} tone=${node.role === "leader" ? "good" : node.heard_ms_ago > 5000 ? "bad" : ""}>${node.role}</${Badge}>
    <span class="what"><strong>${visible(node.node || "this node")}</strong><span class="sub dim">${[node.address, node.leads ? leads(node.leads) : node.role === "leader" ? `epoch ${node.epoch}` : `heard ${duration(node.heard_ms_ago)} ago`, isShort && node.role === "leader" ? server.engine : ""].filter(Boolean).join(" · ")}</span></span>
    <span class="figure ${node.lag > 100 ? "is-warn" : "dim"}">${node.role === "leader" && !node.leads ? `@${number(node.position)}` : node.lag ? `${number(node.lag)} behind` : "in step"}</span></li>`)}</ul>
    ${nodes.length === 1 && !isShort && html`<${Empty} title="One node">No other node could take over. <code>docs/how-to/run-on-etcd.md</code> says how to run three.</${Empty}>`}`;
}

function leads(shards) {
  const some = shards.length > 8 ? `${shards.slice(0, 8).join(", ")} …` : shards.join(", ");
  return shards.length ? `leads ${shards.length} shard${shards.length === 1 ? "" : "s"}: ${some}` : "leads none, stands by";
}

// The leader of each shard, and how much it has; one that is away, with what was known last.
export function ShardList({ shards }) {
  return html`<ul class="rows shards">${shards.map((shard) => html`<li key=${shard.shard} class=${shard.away ? "is-away" : ""}>
    <span class="lead">shard ${shard.shard}</span>
    <span class="what">${shard.away ? html`<strong>away for ${duration(1000 * shard.away_s)}</strong><span class="sub dim">${visible(shard.away)}</span>`
      : html`<strong>${visible(shard.leader || "this node")}</strong><span class="sub dim">epoch ${number(shard.epoch)} · @${number(shard.position)}${shard.lag > 100 ? ` · a standby is ${number(shard.lag)} behind` : ""}</span>`}</span>
    <span class="figure dim" title="names held, waiting, sessions">${number(shard.names_held)} held · ${number(shard.waiters)} wait · ${number(shard.sessions)} session${shard.sessions === 1 ? "" : "s"}</span></li>`)}</ul>`;
}

const mib = (bytes) => bytes == null ? null : bytes > 2 ** 30 ? `${(bytes / 2 ** 30).toFixed(1)} GiB` : `${Math.round(bytes / 2 ** 20)} MiB`;
const us = (value) => value == null ? null : value > 1000 ? `${(value / 1000).toFixed(1)} ms` : `${value} µs`;

function Engine({ health, server }) {
  const facts = [["engine", server.engine], ["durable", server.durable ? "yes" : "no: gone with its process"], ["TLS", server.tls ? "yes" : "no"], ["who must sign in", { required: "every client", policy: "as the policy says", none: "no client" }[server.auth] ?? server.auth]];
  if (health) facts.push(
    ["append, median", us(health.append_p50_us)], ["append, longest lately", us(health.append_max_us)],
    ["data", health.data], ["file system", health.file_system],
    ["disk", health.disk_free_bytes == null ? null : `${mib(health.disk_free_bytes)} free of ${mib(health.disk_total_bytes)}`],
    ["space for the journal", health.room_allowed_bytes ? `${mib(health.room_used_bytes)} of ${mib(health.room_allowed_bytes)} (${health.room})` : health.room],
    ["quorum", health.members_total ? `${health.members_up} of ${health.members_total} members up, ${health.quorum} needed` : null], ["note", health.note]);
  return html`<dl class="facts">${facts.filter(([, value]) => value).map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>
    ${health?.members?.length > 0 && html`<ul class="rows">${health.members.map((member) => html`<li key=${member.address}><${Badge} tone=${member.up ? "good" : "bad"}>${member.up ? member.role || "up" : "down"}</${Badge}><span class="what">${member.address}<span class="sub dim">${member.note}</span></span></li>`)}</ul>`}
    ${!health && html`<p class="dim pad">More is shown to users with the right <code>admin</code>.</p>`}`;
}
