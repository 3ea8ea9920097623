"""Targets of sinks, on real servers: made, read back, taken down and brought up again."""

import asyncio
import hashlib
import http.server
import json
import secrets
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import nats
import psycopg
import redis
from confluent_kafka import Consumer, Producer, TopicPartition

from fencehold.locks.views import WHOLE, Event, Missing, party
from fencehold.sinks.port import Cursor, Sink
from fencehold.sinks.registry import sink_of
from fencehold.sinks.webhook import SIGNATURE, signature
from rig.kafka_mock import MockCluster
from rig.nats import Nats
from rig.postgres import Postgres, reachable_folder
from rig.processes import free_port
from rig.redis import Redis

CLUSTER = "test"


class Target(Protocol):
    """Where a sink writes to."""

    def sink(self) -> Sink: ...

    @property
    def url(self) -> str: ...

    def read(self) -> list[dict[str, Any]]:
        """The CloudEvents there, in their order; of a target with partitions, in that of their sequence."""
        ...

    def down(self) -> None: ...
    def up(self) -> None: ...
    def stop(self) -> None: ...


def happened(position: int, index: int = 1, kind: str = "acquired", name: str = "") -> Event:
    """An event, as `watch` tells it."""
    names = (name or f"job:{position % 7}",) if kind in ("acquired", "released") else ()
    said = party(3, "t#1", {"client": "billing", "host": "web1", "pid": 81})
    more: dict[str, Any] = {
        "index": index,
        "mode": "X",
        "principal": "ann",
        "unix_ms": 1_767_268_800_000 + position,
    }
    return Event(kind, position, position, 3, "t#1", names, position, "", said, None, **more)


def gap(first: int, last: int) -> Event:
    return Event("gap", last, 0, 0, "", (), 0, "", missing=Missing(first, last))


def story(count: int) -> list[Event]:
    """So many events, of which some are of one entry."""
    return [happened(1 + at // 3, 1 + 2 * (at % 3), ("acquired", "released")[at % 2]) for at in range(count)]


class Told:
    """A follower that gets a story, from any place on, then nothing more."""

    node, role, trouble = "here", "leader", ""

    def __init__(self, events: list[Event]) -> None:
        self.all = events
        self._more = asyncio.Event()

    def add(self, *events: Event) -> None:
        self.all.extend(events)
        self._more.set()

    async def shards(self) -> int:
        return 1 + max((event.shard for event in self.all), default=0)

    async def events(self, after: Cursor | None, shard: int = 0) -> AsyncIterator[Event]:
        place = after or (0, WHOLE)
        while True:
            for event in list(self.all):
                if event.shard == shard and event.place > place:
                    place = event.place
                    yield event
            self._more.clear()
            await self._more.wait()

    async def head(self, shard: int = 0) -> int:
        return max((event.position for event in self.all if event.shard == shard), default=0)


class SinkTarget:
    """A target whose sink is found by its URL."""

    @property
    def url(self) -> str:
        raise NotImplementedError

    def sink(self) -> Sink:
        return sink_of(self.url, CLUSTER)

    def stop(self) -> None:
        """Nothing runs, unless said otherwise."""


class TargetServer(Protocol):
    """A server that is killed and started."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...


S = TypeVar("S", bound=TargetServer)


class ServedTarget(SinkTarget, Generic[S]):
    """A target that is a server of its own."""

    _server: S

    def down(self) -> None:
        self._server.kill()

    def up(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


class File(SinkTarget):
    """A file of JSON lines."""

    def __init__(self, folder: Path, max_bytes: int = 60_000) -> None:
        self._max_bytes = max_bytes
        self._folder = folder / "log"
        self._away = folder / "away"
        self._folder.mkdir()
        self.path = self._folder / "events.jsonl"

    def fresh(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()

    @property
    def url(self) -> str:
        return f"jsonl://{self.path}?max_bytes={self._max_bytes}&keep=90"

    def down(self) -> None:
        """Take the folder away: the next file cannot be begun."""
        self._folder.rename(self._away)

    def up(self) -> None:
        self._away.rename(self._folder)

    def read(self) -> list[dict[str, Any]]:
        older = sorted(self._folder.glob("events.jsonl.*"), key=lambda path: -int(path.suffix[1:]))
        return [json.loads(line) for path in (*older, self.path) for line in path.read_text().splitlines()]


class Sqlite(SinkTarget):
    """A file of SQLite, which another connection may have locked."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "events.db"
        self._other: sqlite3.Connection | None = None

    def fresh(self) -> None:
        for path in self._path.parent.glob("events.db*"):
            path.unlink()

    @property
    def url(self) -> str:
        return f"sqlite://{self._path}"

    def down(self) -> None:
        """Lock it."""
        self._other = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._other.execute("BEGIN IMMEDIATE")

    def up(self) -> None:
        if self._other is not None:
            self._other.execute("ROLLBACK")
            self._other.close()
            self._other = None

    def read(self) -> list[dict[str, Any]]:
        with sqlite3.connect(self._path) as connection:
            rows = connection.execute("SELECT event FROM fencehold_events ORDER BY position, idx").fetchall()
        connection.close()
        return [json.loads(row[0]) for row in rows]


class PostgresTarget(ServedTarget[Postgres]):
    """A database."""

    def __init__(self, parent: Path = Path("/var/tmp")) -> None:
        self._folder = reachable_folder(parent)
        self._server = Postgres(self._folder)
        self._server.start()
        self._table = "fencehold_events"

    def fresh(self) -> None:
        self._table = f"events_{secrets.token_hex(4)}"

    @property
    def _where(self) -> str:
        return f"postgresql://owner@127.0.0.1:{self._server.port}/postgres"

    @property
    def url(self) -> str:
        return f"{self._where}?table={self._table}"

    def read(self) -> list[dict[str, Any]]:
        with psycopg.connect(self._where) as connection:
            rows = connection.execute(f"SELECT event FROM {self._table} ORDER BY position, idx").fetchall()
        return [row[0] for row in rows]

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self._folder, ignore_errors=True)


class RedisTarget(ServedTarget[Redis]):
    """A stream of Redis, which keeps what it got."""

    def __init__(self, folder: Path) -> None:
        self._server = Redis(folder, flags=("--appendonly", "yes", "--appendfsync", "always"))
        self._server.start()
        self._stream = "events"

    def fresh(self) -> None:
        self._stream = f"events:{secrets.token_hex(4)}"

    @property
    def url(self) -> str:
        return f"{self._server.url}?stream={self._stream}"

    def read(self) -> list[dict[str, Any]]:
        with redis.Redis(port=self._server.port, decode_responses=True) as client:
            streams: Any = sorted(client.scan_iter(f"{self._stream}*"))
            found: Any = [each for stream in streams for each in client.xrange(stream)]
        for at, fields in found:
            position, _, index = at.partition("-")
            assert json.loads(fields["event"])["sequence"] == f"{int(position):020}.{int(index):016}"
        return [json.loads(fields["event"]) for _, fields in found]

    def forget(self) -> None:
        """Lose all, as a Redis without a disk does."""
        self._server.ask("FLUSHALL")


class NatsTarget(ServedTarget[Nats]):
    """A stream of JetStream."""

    def __init__(self, folder: Path) -> None:
        self._server = Nats(folder)
        self._server.start()
        self._stream = "LOCKS"

    def fresh(self) -> None:
        self._stream = f"LOCKS{secrets.token_hex(4)}"

    @property
    def url(self) -> str:
        return f"{self._server.url}/{self._stream}?subject={self._stream.lower()}"

    def read(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: found.extend(asyncio.run(self._read())))
        thread.start()
        thread.join()
        return found

    async def _read(self) -> list[dict[str, Any]]:
        client = await nats.connect(self._server.url)
        try:
            stream = client.jetstream()
            state = (await stream.stream_info(self._stream)).state
            numbers = range(state.first_seq, state.last_seq + 1)
            messages = await asyncio.gather(*(stream.get_msg(self._stream, number) for number in numbers))
            return [json.loads(message.data or b"") for message in messages]
        finally:
            await client.close()


class Receiver(SinkTarget):
    """A URL that takes events, and drops those it knows by their ids, as who takes them should."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._secret = b"between us"
        (folder / "secret").write_bytes(self._secret)
        self.came: dict[str, dict[str, Any]] = {}
        self.answers: list[int] = []
        """What the next requests are answered with."""
        self.poison = ""
        """An id whose content is wrong."""
        self._server: http.server.ThreadingHTTPServer | None = None
        self.up()

    def fresh(self) -> None:
        self.came.clear()
        (self._folder / "cursor").unlink(missing_ok=True)

    @property
    def url(self) -> str:
        files = f"secret_file={self._folder}/secret&cursor={self._folder}/cursor"
        return f"webhook://127.0.0.1:{self._port}/locks/events?{files}"

    def read(self) -> list[dict[str, Any]]:
        return list(self.came.values())

    def take(self, headers: Any, body: bytes) -> int:
        """What a request is answered."""
        said = dict(part.partition("=")[::2] for part in headers[SIGNATURE].split(","))
        if said["v1"] != signature(self._secret, said["t"], body):
            return 401
        if self.answers:
            return self.answers.pop()
        events = json.loads(body)
        if any(event["id"] == self.poison for event in events):
            return 422
        for event in events:
            self.came.setdefault(event["id"], event)
        return 204

    def down(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def up(self) -> None:
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(receiver.take(self.headers, body))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """It is not read."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    stop = down


class KafkaTarget(SinkTarget):
    """A topic of librdkafka's own cluster, which speaks the protocol on real ports."""

    def __init__(self) -> None:
        self._cluster = MockCluster()
        self._bootstrap = self._cluster.bootstrap
        self.fresh()

    def fresh(self) -> None:
        # It creates topics of four partitions on demand.
        self._topic = f"locks-{secrets.token_hex(4)}"
        client = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0})
        client.list_topics(self._topic, timeout=30)

    @property
    def url(self) -> str:
        return f"kafka://{self._bootstrap}/{self._topic}"

    def read(self) -> list[dict[str, Any]]:
        return sorted(read_topic(self._bootstrap, self._topic), key=lambda event: event["sequence"])

    def down(self) -> None:
        self._cluster.down()

    def up(self) -> None:
        self._cluster.up()

    def stop(self) -> None:
        """Its cluster ends with the process."""


def read_topic(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    """All records of a topic, as CloudEvents; of each partition in order."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "test",
        "enable.partition.eof": True,
        "log_level": 0,
        "fetch.wait.max.ms": 20,
    }
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True})
    try:
        for number in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, number, 0)])
            last: dict[str, str] = {}
            while (message := consumer.poll(30)) is not None:
                if message.error() is not None:
                    break
                said: Any = message.headers() or ()
                headers = {key: value.decode() for key, value in said}
                event = {key[3:]: value for key, value in headers.items() if key.startswith("ce_")}
                assert message.key() == event["partitionkey"].encode()
                assert event["sequence"] > last.get(event["source"], "")
                last[event["source"]] = event["sequence"]
                yield {**event, "data": json.loads(message.value() or b"")}
    finally:
        consumer.close()


def digest(events: list[dict[str, Any]]) -> str:
    """Of all that matters of events, in their order."""
    return hashlib.sha256(json.dumps([(e["id"], e["type"], e["data"]) for e in events]).encode()).hexdigest()
