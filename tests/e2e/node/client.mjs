// What a Node client of Redis does with a Fencehold server, in RESP2 or RESP3; one line of JSON for each finding.
import { createClient } from "redis";

const [port, version] = process.argv.slice(2).map(Number);

const connect = async () => {
  const client = createClient({ url: `redis://127.0.0.1:${port}`, RESP: version });
  client.on("error", (error) => {
    throw error;
  });
  await client.connect();
  return client;
};

// In RESP2 a map comes as a flat array of keys and values.
const map = (reply) =>
  Array.isArray(reply)
    ? Object.fromEntries(reply.filter((_, i) => i % 2 === 0).map((key, i) => [key, reply[2 * i + 1]]))
    : reply;
const call = async (client, ...words) => client.sendCommand(words.map(String));
const say = (finding) => console.log(JSON.stringify(finding));

const holder = await connect();
const waiter = await connect();
const name = `node:${version}:${process.pid}`;

const grant = map(await call(holder, "LOCK.ACQUIRE", name, "WAIT", 0));
say({ granted: grant.name === name, own_ttl: grant.own_ttl });
say({ tried: await call(waiter, "LOCK.ACQUIRE", name, "WAIT", 0) });

const waiting = call(waiter, "LOCK.ACQUIRE", name);
const info = map(await call(holder, "LOCK.INFO", name));
say({ holders: info.holds.length });
say({ released: await call(holder, "LOCK.RELEASE", name, grant.fence) });
const next = map(await waiting);
say({ grew: next.fence > grant.fence });

try {
  await call(holder, "LOCK.RELEASE", name, grant.fence);
} catch (error) {
  say({ refused: error.message.split(" ")[0] });
}
say({ pong: await holder.ping() });
const many = await Promise.all(
  [...Array(100).keys()].map((number) => call(holder, "LOCK.ACQUIRE", `${name}:${number}`, "WAIT", 0)),
);
const fences = many.map((reply) => map(reply).fence);
say({ pipelined: fences.length, ordered: fences.every((fence, i) => i === 0 || fence > fences[i - 1]) });

await holder.close();
await waiter.close();
