"""A redis-py client whose connections ask before each command how long they may wait.

1. *The connection asks*, for everything goes through it: commands, pipelines, scripts, its own greeting.
2. *Nothing is retried*: three attempts of a second each are three seconds.
3. *Nothing is shared*: other users of the caller's pool have other deadlines.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

_NOT_COPIED = ("maint_notifications", "oss_cluster", "orig_")
"""What a pool has put there for itself. Announced maintenance would also lengthen timeouts."""


@contextmanager
def capped(client: Redis, seconds: Callable[[], float]) -> Iterator[Redis]:
    """The same client for as long as the block lasts, capped by what this says each time; it may raise."""
    pool = _pool(client.connection_pool, seconds)
    try:
        yield type(client)(connection_pool=pool)
    finally:
        pool.disconnect()


def _pool(pool: ConnectionPool, seconds: Callable[[], float]) -> ConnectionPool:
    options = {key: value for key, value in pool.connection_kwargs.items() if not key.startswith(_NOT_COPIED)}
    options |= {"retry": Retry(NoBackoff(), 0), "retry_on_error": []}
    return ConnectionPool(_capped_class(pool.connection_class, seconds), **options, **_no_maintenance())


def _capped_class(base: Any, seconds: Callable[[], float]) -> Any:
    class Capped(base):  # type: ignore[misc]
        def connect(self, *args: Any, **options: Any) -> Any:
            self._cap()
            return super().connect(*args, **options)

        def send_packed_command(self, *args: Any, **options: Any) -> Any:
            self._cap()
            return super().send_packed_command(*args, **options)

        def _cap(self) -> None:
            self.socket_timeout = self.socket_connect_timeout = left = seconds()
            if self._sock is not None:
                self._sock.settimeout(left)

    return Capped


def _no_maintenance() -> dict[str, Any]:
    try:
        from redis.maint_notifications import MaintNotificationsConfig  # noqa: PLC0415
    except ImportError:  # before redis-py 6.5
        return {}
    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}
