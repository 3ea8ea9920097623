// A client of Fencehold in Node: a session that is kept alive, a lock with its fence, a try, a withdrawal, a loss.
//
//   npm install && node locks.mjs 127.0.0.1:7421 [hold]
import {randomUUID} from "node:crypto";
import {readFileSync} from "node:fs";
import {once} from "node:events";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const PROTO = new URL("../../proto/", import.meta.url).pathname;
// Fences have 64 bits: as text they stay whole.
const definition = loader.loadSync("fencehold/v1/fencehold.proto", {includeDirs: [PROTO], keepCase: true, longs: String, oneofs: true});
const {LockService, SessionService} = grpc.loadPackageDefinition(definition).fencehold.v1;
const options = {"grpc.service_config": readFileSync(`${PROTO}/fencehold/v1/service_config.json`, "utf8")};

const address = process.argv[2] ?? "127.0.0.1:7421";
const locks = new LockService(address, grpc.credentials.createInsecure(), options);
const sessions = new SessionService(address, grpc.credentials.createInsecure(), options);

const call = (stub, method, request, within_ms = 10_000) =>
  new Promise((resolve, reject) =>
    stub[method](request, {deadline: Date.now() + within_ms}, (error, answer) => (error ? reject(error) : resolve(answer))));

class Session {
  static async open(client) {
    const {session, ttl_ms} = await call(sessions, "Open", {client, ttl_ms: 10_000});
    return new Session(session, ttl_ms);
  }

  constructor(id, ttl_ms) {
    this.id = id;
    this.stream = sessions.Session();
    this.stream.on("error", () => {});
    this.stream.write({session: id});
    this.beat = setInterval(() => this.stream.write({sequence: Date.now()}), ttl_ms / 3);
    this.lost = new Promise((resolve) => this.stream.on("data", (told) => told.lost && resolve(told.lost)));
  }

  // The hold, or null if it was not acquired in time.
  async lock(name, wait_ms) {
    const {hold} = await call(locks, "Lock", {session: this.id, name, wait_ms, request_id: randomUUID()}, wait_ms + 5_000);
    return hold ?? null;
  }

  unlock(hold) {
    return call(locks, "Unlock", {session: this.id, hold_id: hold.hold_id});
  }

  async close() {
    clearInterval(this.beat);
    await call(sessions, "Close", {session: this.id});
    this.stream.end();
  }
}

async function tour() {
  const ann = await Session.open("ann");
  const bob = await Session.open("bob");

  const first = await ann.lock("wallet:7", 5_000);
  console.log("held", first.fence);
  console.log("try", await bob.lock("wallet:7", 0));

  // A call that is cancelled is withdrawn: it is never granted later.
  const waiting = locks.Lock({session: bob.id, name: "wallet:7"}, () => {});
  setTimeout(() => waiting.cancel(), 100);
  await once(waiting, "status");
  console.log("cancelled");

  await ann.unlock(first);
  const second = await bob.lock("wallet:7", 5_000);
  console.log("next", BigInt(second.fence) > BigInt(first.fence));

  await call(locks, "Break", {name: "wallet:7", fence: second.fence});
  const {hold, reason} = await bob.lost;
  console.log("lost", hold.fence === second.fence, reason);
  try {
    await bob.unlock(second);
  } catch (error) {
    console.log("refused", grpc.status[error.code]);
  }
  await ann.close();
  await bob.close();
}

// Holds a name until its input ends, whatever happens to the servers meanwhile.
async function holdOn(name) {
  const session = await Session.open("holder");
  const hold = await session.lock(name, 10_000);
  let isLost = false;
  session.lost.then(() => (isLost = true));
  console.log("held", hold.fence);
  process.stdin.resume();
  await once(process.stdin, "end");
  if (!isLost) await session.unlock(hold);
  console.log(isLost ? "lost" : "released");
  await session.close();
}

await (process.argv[3] === "hold" ? holdOn("wallet:node") : tour());
