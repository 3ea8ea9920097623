"""Events in a topic of Kafka, by librdkafka: keyed by name, headers `ce_*`, idempotent, acknowledged by all.

1. A record is a CloudEvent in binary mode: the attributes are headers, the value is the data. Its key is the name,
   its partition the CRC-32 of the key, as librdkafka's `consistent` has it: events of one name are in order.
2. `fencehold_after` is a header of ours: all events up to that place had been acknowledged before; of several
   shards it has the place of each, as in `0:17.1,3:9.0`. So the newest record of the topic says where to continue,
   and the last records of each partition what that has. So after a crash nothing is duplicated, and nothing is
   missing, as long as the topic keeps its newest records.
3. A batch is done when all of it is acknowledged. If it is not, the producer is discarded with all that it has
   queued.
"""

import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from fencehold.client.login import read_secret
from fencehold.drivers.address import ParsedUrl, Scheme, text, word
from fencehold.errors import FenceholdError, OutcomeUnknown, PermissionDenied, Unavailable, UsageError
from fencehold.sinks.port import (
    Cursor,
    Cursors,
    Declared,
    Delivery,
    Place,
    Record,
    Rejected,
    cursors_of,
    places_text,
    read_places,
)
from fencehold.sinks.worker import Worker

SCHEME = Scheme(
    names=("kafka",),
    secure=("kafkas",),
    form="kafka://[user:password@]host[:9092][,host…]/TOPIC",
    port=9092,
    options=(
        word("mechanism", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
        word("compression", ("none", "lz4", "zstd", "gzip", "snappy")),
        text("password_file"),
    ),
)
_ANSWER_S = 15.0
_AFTER, _TYPE = "fencehold_after", "datacontenttype"
_LOOK_BACK = 20
"""Offsets that are searched for the last record of a partition: the newest may be gone, or a marker."""
_LOOK_BACK_SHARDS = 2_000
"""The same with several shards: all that may be there of the last batch, which has 500 records."""
_NOWHERE: Cursor = (0, 0)


class KafkaTopic:
    """A topic."""

    declared = Declared("kafka", Delivery.EXACTLY_ONCE, "headers of the newest records")

    def __init__(self, said: ParsedUrl, settings: dict[str, Any] | None = None) -> None:
        """`settings` are librdkafka's, for tests."""
        self._topic = said.path
        self._where = f"kafka://{','.join(map(str, said.endpoints))}/{said.path}"
        self._settings = _settings(said) | (settings or {})
        self._compression = said.options["compression"]
        self._producer: Any = None
        self._worker = Worker()
        self._count = 0
        self._shards = 1
        self._had: dict[tuple[int, int], Cursor] = {}
        """Per partition and shard, the last that it had when it was opened."""
        self._acknowledged: Cursors = {}

    @classmethod
    def of(cls, url: str) -> "KafkaTopic":
        """Raises UsageError: the URL is none, or names no topic."""
        said = SCHEME.parse(url)
        if not said.path or "/" in said.path:
            raise said.refusal(f"it names a topic: write {SCHEME.form}")
        return cls(said)

    async def open(self, shards: int = 1) -> Cursors:
        self._shards = shards
        try:
            return await self._worker.do(self._open)
        except ModuleNotFoundError:
            raise UsageError("kafka:// needs confluent-kafka: pip install 'fencehold[kafka]'") from None

    async def deliver(self, batch: Sequence[Record]) -> None:
        await self._worker.do(self._write, list(batch))

    async def close(self) -> None:
        await self._worker.end(self._drop)

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            # What it has queued must not arrive later, after records of the next producer.
            producer.purge()
            producer.flush(1.0)

    def _open(self) -> Cursors:
        from confluent_kafka import KafkaException, Producer  # noqa: PLC0415

        self._drop()
        try:
            newest, after = self._read_back()
            self._producer = Producer(
                {
                    **self._settings,
                    "enable.idempotence": True,
                    "acks": "all",
                    "compression.type": self._compression,
                    "linger.ms": 5,
                    "delivery.timeout.ms": int(_ANSWER_S * 1000),
                    "queue.buffering.max.messages": 10_000,
                }
            )
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        # What was acknowledged to this process is there, unless the topic has lost its newest records.
        for shard, cursor in self._acknowledged.items():
            if max(newest.get(shard, _NOWHERE), after.get(shard, _NOWHERE)) >= cursor:
                after[shard] = max(after.get(shard, _NOWHERE), cursor)
        # Records of a shard are there that had none before: then it continues from its beginning.
        self._acknowledged = {**dict.fromkeys(newest, _NOWHERE), **after}
        return dict(self._acknowledged)

    def _read_back(self) -> tuple[Cursors, Cursors]:
        """Of each shard its newest record, and up to where it is complete; of each partition, what it has."""
        from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

        consumer = Consumer(
            {
                **self._settings,
                "group.id": "fencehold-sink",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        newest, after = Cursors(), Cursors()
        try:
            self._count = self._partitions(consumer)
            self._had = {}
            for number in range(self._count):
                partition = TopicPartition(self._topic, number)
                low, high = consumer.get_watermark_offsets(partition, timeout=_ANSWER_S)
                had, its_after = self._last_of(consumer, number, low, high) if high > low else ({}, {})
                self._had |= {(number, shard): cursor for shard, cursor in had.items()}
                newest, after = _later(newest, had), _later(after, its_after)
        finally:
            consumer.close()
        # With one partition, the newest record is the end of all that is there.
        return newest, _later(after, newest) if self._count == 1 else after

    def _partitions(self, consumer: Any) -> int:
        known = consumer.list_topics(self._topic, timeout=_ANSWER_S).topics[self._topic]
        if known.error is not None:
            from confluent_kafka import KafkaException  # noqa: PLC0415

            raise KafkaException(known.error)
        return len(known.partitions)

    def _last_of(self, consumer: Any, number: int, low: int, high: int) -> tuple[Cursors, Cursors]:
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        look_back = _LOOK_BACK if self._shards == 1 else _LOOK_BACK_SHARDS
        consumer.assign([TopicPartition(self._topic, number, max(low, high - look_back))])
        had, after = Cursors(), Cursors()
        while (message := consumer.poll(_ANSWER_S)) is not None:
            if message.error() is not None:
                if message.error().name() == "_PARTITION_EOF":
                    break
                continue
            places = _places(message.headers())
            if places is not None:
                had, after = _later(had, places[0]), _later(after, places[1])
            if message.offset() >= high - 1:
                break
        return had, after

    def _write(self, batch: list[Record]) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415

        if self._producer is None:
            raise Unavailable(f"{self._where} is not open")
        errors: list[tuple[Place, Any]] = []
        after = self._after()
        try:
            for record in batch:
                partition = zlib.crc32(record.key.encode()) % self._count
                if record.cursor > self._had.get((partition, record.shard), _NOWHERE):
                    self._produce(record, partition, after, errors)
            left = self._producer.flush(2 * _ANSWER_S)
        except KafkaException as error:
            raise self._thrown_away(error.args[0]) from error
        except BufferError as error:
            raise self._thrown_away(error) from error
        wrong = [place for place, error in errors if error.name() in ("MSG_SIZE_TOO_LARGE", "INVALID_RECORD")]
        if wrong and len(wrong) == len(errors) and not left:
            raise self._too_large(batch, wrong)
        if errors or left:
            raise self._thrown_away(errors[0][1] if errors else "not acknowledged in time")
        self._acknowledged |= cursors_of(batch)

    def _after(self) -> str:
        """Up to where all is acknowledged, as text of a header."""
        if self._shards > 1:
            return places_text(self._acknowledged)
        position, index = self._acknowledged.get(0, _NOWHERE)
        return f"{position}.{index}"

    def _produce(self, record: Record, partition: int, after: str, errors: list[tuple[Place, Any]]) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append((record.place, error))

        headers = [(f"ce_{name}", value.encode()) for name, value in record.attributes if name != _TYPE]
        headers += [("content-type", b"application/json"), (_AFTER, after.encode())]
        try:
            self._producer.produce(
                self._topic,
                key=record.key.encode(),
                value=record.data,
                partition=partition,
                headers=headers,
                on_delivery=on_delivery,
            )
        except KafkaException as error:
            if error.args[0].name() != "MSG_SIZE_TOO_LARGE":
                raise
            errors.append((record.place, error.args[0]))
        self._producer.poll(0)

    def _too_large(self, batch: list[Record], wrong: list[Place]) -> Rejected:
        """The other records are there; marked so, so that they are not sent again."""
        for record in batch:
            if record.place not in wrong:
                partition = zlib.crc32(record.key.encode()) % self._count
                self._had = _later(self._had, {(partition, record.shard): record.cursor})
        return Rejected(f"{self._where} takes no message of that size", wrong)

    def _thrown_away(self, error: Any) -> OutcomeUnknown:
        with suppress(Exception):
            self._drop()
        return OutcomeUnknown(f"{self._where}: {_words(error)}")

    def _failed(self, error: Any) -> FenceholdError:
        name, said = error.name(), f"{self._where}: {_words(error)}"
        if "AUTH" in name:
            return PermissionDenied(said)
        if name in ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_OR_PARTITION", "_UNKNOWN_TOPIC"):
            return Unavailable(f"{said}: make the topic first")
        return Unavailable(said)


def _settings(said: ParsedUrl) -> dict[str, Any]:
    """The connection settings of librdkafka."""
    found: dict[str, Any] = {
        "bootstrap.servers": ",".join(map(str, said.endpoints)),
        "client.id": "fencehold-sink",
        "socket.timeout.ms": 10_000,
        "log_level": 0,
    }
    protocol = "PLAINTEXT" if said.tls is None else "SSL"
    login = said.login
    if any(login):
        protocol = f"SASL_{protocol}"
        password = login.password or read_secret(Path(said.options["password_file"]).expanduser())
        found |= {
            "sasl.mechanism": said.options["mechanism"],
            "sasl.username": login.user,
            "sasl.password": password,
        }
    if said.tls is not None:
        files = {"ssl.ca.location": said.tls.ca, "ssl.certificate.location": said.tls.cert}
        files["ssl.key.location"] = said.tls.key or said.tls.cert
        found |= {name: str(path) for name, path in files.items() if path is not None}
        found["enable.ssl.certificate.verification"] = said.tls.verifies
    return found | {"security.protocol": protocol}


Key = TypeVar("Key")


def _later(one: dict[Key, Cursor], other: dict[Key, Cursor]) -> dict[Key, Cursor]:
    """Of each the later one."""
    return {key: max(one.get(key, _NOWHERE), other.get(key, _NOWHERE)) for key in {**one, **other}}


def _places(headers: Any) -> tuple[Cursors, Cursors] | None:
    """Of a record of ours: its place, and up to where all was there before it; each by shard."""
    found = {name: value.decode() for name, value in headers or () if value is not None}
    try:
        position, _, index = found["ce_sequence"].partition(".")
        shard, before = int(found["ce_source"].rpartition("/")[2]), found[_AFTER]
        after = read_places(before if ":" in before or not before else f"0:{before}")
        return {shard: (int(position), int(index))}, after
    except (KeyError, ValueError):
        return None


def _words(error: Any) -> str:
    return error.str() if hasattr(error, "str") else str(error)
