// etcd's lock interface from Node: a lease, a lock, a second one that waits for the first.
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import {promisify} from "node:util";

const [address, protos] = process.argv.slice(-2);
const definition = protoLoader.loadSync(["lease.proto", "lock.proto"], {includeDirs: [protos], longs: String});
const {etcdserverpb, v3lockpb} = grpc.loadPackageDefinition(definition);
const plain = grpc.credentials.createInsecure();
const leases = new etcdserverpb.Lease(address, plain), locks = new v3lockpb.Lock(address, plain);
const call = (client, method) => promisify(client[method]).bind(client);
const grant = async () => (await call(leases, "LeaseGrant")({TTL: 30})).ID;

const [one, two] = [await grant(), await grant()];
const name = Buffer.from("etcd-node");
const first = await call(locks, "Lock")({name, lease: one});
console.log("locked", first.key.toString() === `etcd-node/${BigInt(one).toString(16)}`);
let isWaiting = true;
const waiting = call(locks, "Lock")({name, lease: two}).finally(() => { isWaiting = false; });
await new Promise((resolve) => setTimeout(resolve, 300));
console.log("waits", isWaiting);
await call(locks, "Unlock")({key: first.key});
const second = await waiting;
console.log("next", BigInt(second.header.revision) > BigInt(first.header.revision));
await call(leases, "LeaseRevoke")({ID: one});
await call(leases, "LeaseRevoke")({ID: two});
process.exit(0);
