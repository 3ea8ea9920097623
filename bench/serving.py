"""What an operation costs the server, in processor time, and where that goes: one client, a crowd, a large crowd.

The clients are bare sockets in a process of their own, each with one session and one command in flight: they
acquire an uncontended name and release it, with the commands of the SDK. Processor time bears company on the
machine, where the time of day does not. Beside Fencehold stand what nothing on this event loop can undercut, a
server that only says OK to whatever comes, and Redis.

In µs an operation, `kernel_us` is what the server spent in system calls, and `user_us` the rest: what the server
that only says OK has of it is the event loop's, the remainder is our code. Where the compiled build is installed
(`make compiled-build`) it has rows of its own.
"""

import select
import socket
import sys
from time import perf_counter

from bench import compiled, procfs
from bench.contest import Benchmark, Call, Contest
from bench.musts import at_most, median
from bench.samples import Figures
from bench.servers import Fencehold, Redis, Server
from bench.wire import command

WIDTHS = (1, 64, 256)

_OPEN = b"*3\r\n$12\r\nSESSION.OPEN\r\n$3\r\nTTL\r\n$5\r\n30000\r\n"
_ACQUIRE = (
    b"*8\r\n$12\r\nLOCK.ACQUIRE\r\n$%d\r\n%b\r\n$4\r\nWAIT\r\n$1\r\n0\r\n"
    b"$7\r\nREQUEST\r\n$%d\r\n%b\r\n$8\r\nANSWERED\r\n$%d\r\n%b\r\n"
)
_RELEASE = (
    b"*7\r\n$12\r\nLOCK.RELEASE\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
    b"$7\r\nREQUEST\r\n$%d\r\n%b\r\n$8\r\nANSWERED\r\n$%d\r\n%b\r\n"
)
_SET, _DEL = (
    b"*6\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$1\r\nv\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n",
    b"*2\r\n$3\r\nDEL\r\n$%d\r\n%b\r\n",
)
_FENCE = b"$5\r\nfence\r\n:"


class Client:
    """One connection with one command in flight."""

    def __init__(self, port: int, number: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = number
        self._asked = 0
        self._name = b""

    def ask(self, *words: str | int) -> bytes:
        self.socket.sendall(command(*words))
        return self.socket.recv(4_096)

    def close(self) -> None:
        self.socket.close()

    def turn(self, reply: bytes) -> None:
        """Say what follows the reply to what was said before."""
        self.socket.send(self._next(reply))

    def _next(self, reply: bytes) -> bytes:
        if self._asked % 2:
            return self._release(reply)
        self._name = b"bench:%d:%d" % (self._number, self._asked)
        self._asked += 1
        return self._acquire()

    def _acquire(self) -> bytes:
        name, request, answered = self._name, b"%d" % self._asked, b"%d" % (self._asked - 1)
        return _ACQUIRE % (len(name), name, len(request), request, len(answered), answered)

    def _release(self, reply: bytes) -> bytes:
        start = reply.index(_FENCE) + len(_FENCE)
        name, fence, answered = self._name, reply[start : reply.index(b"\r", start)], b"%d" % self._asked
        self._asked += 1
        request = b"%d" % self._asked
        return _RELEASE % (len(name), name, len(fence), fence, len(request), request, len(answered), answered)


class RedisClient(Client):
    """The same for a Redis: what a lock of it takes at the least."""

    def _acquire(self) -> bytes:
        return _SET % (len(self._name), self._name)

    def _release(self, reply: bytes) -> bytes:
        self._asked += 1
        return _DEL % (len(self._name), self._name)


def load(port: int, pid: int, kind: str, connections: int, operations: int) -> Figures:
    """So many operations over so many connections; what each cost the server `pid`."""
    made = Client if kind in ("journal", "volatile") else RedisClient
    clients = [made(port, number) for number in range(connections)]
    if kind == "volatile":
        for client in clients:
            client.ask("TIER", "EFFICIENCY")
    if made is Client:
        for client in clients:
            client.ask("SESSION.OPEN", "TTL", 30_000)
    run = _alone if connections == 1 else _crowd
    run(clients, operations // 10)
    before, begun = procfs.cpu_times_s(pid), perf_counter()
    done = run(clients, operations)
    took_s, after = perf_counter() - begun, procfs.cpu_times_s(pid)
    for client in clients:
        client.close()
    user_us, kernel_us = ((late - early) * 1e6 / done for early, late in zip(before, after, strict=True))
    return {
        "cpu_us": user_us + kernel_us,
        "user_us": user_us,
        "kernel_us": kernel_us,
        "ops_per_s": done / took_s,
    }


def _alone(clients: list[Client], operations: int) -> int:
    client, reply = clients[0], b""
    operations += operations % 2
    for _ in range(operations):
        client.turn(reply)
        reply = client.socket.recv(4_096)
    return operations


def _crowd(clients: list[Client], operations: int) -> int:
    poll = select.epoll()
    by_number = {client.socket.fileno(): client for client in clients}
    left = {number: 2 * max(1, operations // len(clients) // 2) for number in by_number}
    done = sum(left.values())
    for number, client in by_number.items():
        poll.register(number, select.EPOLLIN)
        client.turn(b"")
    busy = len(clients)
    while busy:
        for number, _ in poll.poll():
            client = by_number[number]
            reply = client.socket.recv(4_096)
            if not reply:
                raise ConnectionError("the server closed the connection")
            left[number] -= 1
            if left[number]:
                client.turn(reply)
            else:
                busy -= 1
    poll.close()
    return done


class BareServer(Server):
    """Says OK to whatever comes, on the same event loop."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.bare_server", str(self.port)]


class OnServer(Call):
    """The load on one server, whose port and process are known only when it runs."""

    def __init__(self, server: Server, kind: str, connections: int, operations: int, prefix: str = "") -> None:
        name = f"{prefix}{kind} {connections}"
        arguments = {"kind": kind, "connections": connections, "operations": operations}
        super().__init__(name, load, arguments, isolated=True)
        self._server = server

    def setup(self) -> None:
        self.arguments.update(port=self._server.port, pid=self._server.pid)


def build(quick: bool) -> Contest:
    """The contest."""
    ours, bare = Fencehold(), BareServer("a server that only says OK")
    synced, unsynced = Redis("a Redis that syncs", synced=True), Redis("a Redis in memory", synced=False)
    kinds: list[tuple[Server, str, str]] = [
        (ours, "volatile", ""),
        (ours, "journal", ""),
        (bare, "only OK", ""),
        (unsynced, "Redis, memory", ""),
        (synced, "Redis, synced", ""),
    ]
    servers: list[Server] = [ours, bare, synced, unsynced]
    python = compiled.python()
    if python is not None:
        quick_one = Fencehold("a compiled Fencehold server", python=python)
        servers.append(quick_one)
        kinds += [(quick_one, kind, "compiled, ") for kind in ("volatile", "journal")]
    many = 1 if quick else 4
    return Contest(
        contestants=[
            OnServer(server, kind, width, many * (4_000 if width == 1 else 20_000), prefix)
            for width in WIDTHS
            for server, kind, prefix in kinds
        ],
        rounds=3 if quick else 7,
        warmups=0 if quick else 1,
        fixtures=servers,
        musts=[
            at_most("server CPU, volatile tier, one connection", median("volatile 1", "cpu_us"), 50, "µs"),
            at_most("server CPU, journal, 64 connections", median("journal 64", "cpu_us"), 20.6, "µs"),
            at_most("server CPU, journal, 256 connections", median("journal 256", "cpu_us"), 16.9, "µs"),
        ],
    )


BENCHMARK = Benchmark("serving", "what an operation costs the server, in processor time, by layer", build)
