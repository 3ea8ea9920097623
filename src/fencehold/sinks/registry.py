"""Which sink a URL means."""

from collections.abc import Callable

from fencehold.drivers.address import scheme_in, wrong_scheme
from fencehold.sinks.json_lines import JsonLines
from fencehold.sinks.kafka import KafkaTopic
from fencehold.sinks.nats_jetstream import NatsJetStream
from fencehold.sinks.port import Sink
from fencehold.sinks.sql import PostgresRows, SqliteRows
from fencehold.sinks.webhook import Webhook

_OF: dict[str, Callable[[str, str], Sink]] = {
    "jsonl": lambda url, _: JsonLines.of(url),
    "sqlite": SqliteRows.of,
    "postgresql": PostgresRows.of,
    "postgres": PostgresRows.of,
    "nats": lambda url, _: NatsJetStream.of(url),
    "natss": lambda url, _: NatsJetStream.of(url),
    "webhook": lambda url, _: Webhook.of(url),
    "webhooks": lambda url, _: Webhook.of(url),
    "kafka": lambda url, _: KafkaTopic.of(url),
    "kafkas": lambda url, _: KafkaTopic.of(url),
}
_REDIS = ("redis", "rediss", "valkey", "valkeys", "redis+sentinel", "rediss+sentinel")
SCHEMES = (*_OF, *_REDIS)


def sink_of(url: str, cluster: str) -> Sink:
    """The sink that a URL names, not opened yet.

    Raises:
        UsageError: it names none; the message says what to write instead.
    """
    scheme = scheme_in(url)
    if scheme in _REDIS:
        # Its driver comes with an extra.
        from fencehold.sinks.redis_stream import RedisStream  # noqa: PLC0415

        return RedisStream.of(url)
    if scheme not in _OF:
        raise wrong_scheme(url, SCHEMES)
    return _OF[scheme](url, cluster)
