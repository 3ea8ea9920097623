"""The wire: what nodes were asked and what they said, overheard at their end, with the true time of each.

Only this sees when an answer *left*: a client hears of it later, or never.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import hiredis


class Said(NamedTuple):
    """A reply, or a push, as it left a node."""

    at_ns: int
    node: str
    session: int
    """Of the connection, as far as it has one."""
    words: tuple[bytes, ...]
    """The command it answers; none for a push."""
    heard_ns: int
    """When that was heard; the same as `at_ns` for a push."""
    reply: Any
    shard: int = 0
    """That the connection chose."""


class Tap:
    """Listens at the server's end of one connection."""

    def __init__(self, node: str, now_ns: Callable[[], int], tell: Callable[[Said], None]) -> None:
        self._node = node
        self._now_ns = now_ns
        self._tell = tell
        self._commands = hiredis.Reader()
        self._replies = hiredis.Reader()
        self._pending: deque[tuple[int, tuple[bytes, ...]]] = deque()
        self._session = 0
        self._shard = 0

    def on_heard(self, data: bytes) -> None:
        """The node is about to read this."""
        self._commands.feed(data)
        while (words := self._commands.gets()) is not False:
            self._pending.append((self._now_ns(), tuple(words)))
            if words[0] == b"HELLO" and b"SHARD" in words:
                self._shard = int(words[words.index(b"SHARD") + 1])
            elif words[0] == b"SESSION.RESUME":
                # What happened to it meanwhile is pushed before this is answered.
                self._session = int(words[1])

    def on_said(self, data: bytes) -> None:
        """The node has written this."""
        self._replies.feed(data)
        now_ns = self._now_ns()
        while (reply := self._replies.gets()) is not False:
            if isinstance(reply, hiredis.PushNotification):
                self._tell(Said(now_ns, self._node, self._session, (), now_ns, list(reply), self._shard))
            elif self._pending:
                heard_ns, words = self._pending.popleft()
                if words[0] == b"SESSION.OPEN" and isinstance(reply, dict):
                    self._session = reply[b"session"]
                self._tell(Said(now_ns, self._node, self._session, words, heard_ns, reply, self._shard))
