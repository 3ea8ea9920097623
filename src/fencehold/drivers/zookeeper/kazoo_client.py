"""kazoo's client, made and ended our way; and what its errors mean.

1. A connection is made with the newest transaction that was seen before it, also by earlier sessions, and a server
   that is behind refuses it: what was seen is never unseen. (kazoo forgets that when a session ends.)
2. It logs nothing: to kazoo every lost connection is a handful of warnings; here it is an error with a name, or
   nothing at all.
3. After `close`, no thread of kazoo's is left.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    QuotaExceededError,
    SessionClosedRequireSaslError,
)
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.drivers.zookeeper.handler import LoopHandler

ANSWERS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
"""Errors that say how things stand."""
DENIALS = (AuthFailedError, SessionClosedRequireSaslError)
"""A server that refuses a client. It has done nothing of what it refuses so, does nothing that was sent after that
on the same connection, and ends the session."""
REFUSALS = (NoAuthError, InvalidACLError, QuotaExceededError)
"""Errors that are answers, too, but to a question that should not have been asked."""

_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 1.5, "max_delay": 0.5}

_log = logging.getLogger("fencehold.drivers.zookeeper.kazoo")
_log.addHandler(logging.NullHandler())
_log.setLevel(logging.CRITICAL)
# Below this level kazoo writes out what it sends, and that includes passwords.
_log.addFilter(lambda record: record.levelno >= logging.INFO)


class ZookeeperAnswer(NamedTuple):
    """What came of one request. Some errors are answers: that a node is missing, or there already."""

    value: Any = None
    error: Exception | None = None

    @property
    def is_missing(self) -> bool:
        return isinstance(self.error, NoNodeError)

    def unwrap(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def acl_of(address: ZookeeperAddress) -> Any:
    """Who may do something with what we make: we alone, if we have a login."""
    if not address.user:
        return OPEN_ACL_UNSAFE
    return [make_digest_acl(address.user, address.password, all=True)]


def make_client(
    address: ZookeeperAddress,
    handler: LoopHandler,
    *,
    timeout_s: float,
    zxid: int,
    on_state: Callable[[Any, str], None],
) -> Any:
    """A client that is not started yet; `on_state` is called on kazoo's thread, with the client and its state."""
    client = KazooClient(
        hosts=",".join(address.hosts),
        timeout=timeout_s,
        handler=handler,
        auth_data=[("digest", f"{address.user}:{address.password}")] if address.user else None,
        default_acl=acl_of(address) if address.user else None,
        connection_retry=KazooRetry(**_RETRY),
        logger=_log,
    )
    client.last_zxid = zxid
    client.add_listener(partial(on_state, client))
    return client


async def close(client: Any, patience_s: float) -> None:
    """End its session in order, if that is possible in so many seconds, and wait until nothing of it is left."""
    cut = asyncio.get_running_loop().call_later(patience_s, client.handler.hang_up)
    try:
        await asyncio.to_thread(_close, client)
    finally:
        cut.cancel()


def _close(client: Any) -> None:
    # What cannot be ended in order is a thread that waits for a name server; it ends when that answers.
    with contextlib.suppress(KazooException, OSError):
        client.stop()
        client.close()
