"""librdkafka's own cluster, which speaks Kafka's protocol on real ports, keeps records in memory, and whose broker
can be taken down and brought up again with what it had.

The Python binding has no words for the last, so it is called by librdkafka's own interface.
"""

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka

_PRODUCER, _BROKER = 0, 1
_ERROR_BYTES = 512


class MockCluster:
    """One broker. It ends with the process."""

    def __init__(self) -> None:
        library = _library()
        why = ctypes.create_string_buffer(_ERROR_BYTES)
        settings = library.rd_kafka_conf_new()
        for key, value in ((b"log_level", b"0"), (b"bootstrap.servers", b"127.0.0.1:9")):
            library.rd_kafka_conf_set(settings, key, value, why, _ERROR_BYTES)
        # What it lives in: a client that never says anything.
        client = library.rd_kafka_new(_PRODUCER, settings, why, _ERROR_BYTES)
        if not client:
            raise RuntimeError(f"librdkafka: {why.value.decode()}")
        self._library = library
        self._cluster = library.rd_kafka_mock_cluster_new(client, 1)
        self.bootstrap: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def down(self) -> None:
        """Close its connections, and take no more."""
        self._done(self._library.rd_kafka_mock_broker_set_down(self._cluster, _BROKER))

    def up(self) -> None:
        self._done(self._library.rd_kafka_mock_broker_set_up(self._cluster, _BROKER))

    def _done(self, code: int) -> None:
        if code:
            raise RuntimeError(f"librdkafka: error {code}")


def _library() -> Any:
    (found,) = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(found))
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
