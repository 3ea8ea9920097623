"""Terms: what an acquire asks for, checked and encoded once, so that the next acquire costs little."""

import json
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from fencehold.drivers.resp.wire import bulk, number, options
from fencehold.durations import LEAST_S, Duration, seconds_of
from fencehold.errors import Unsupported, UsageError
from fencehold.guarantees import Guarantees

Meta: TypeAlias = str | Mapping[str, object] | None
"""What `explain` shows with a hold: text, or a mapping, sent as JSON."""
Forever: TypeAlias = Literal[-1] | None
"""A time to wait that has no limit."""

_OWN_WORDS = 7
"""LOCK.ACQUIRE, OWNER o, REQUEST id, ANSWERED id."""
_PLAIN = (0, "X", 0, 0, "", 0)
"""The options of terms that give none: nearly all."""


class Terms:
    """Names, how they are wanted, for how long, and how long to wait for them."""

    __slots__ = ("_options", "names", "names_encoded", "prefix", "spans", "timeout")

    def __init__(
        self,
        names: tuple[str, ...],
        *,
        timeout: Duration | None = None,
        ttl: Duration | None = None,
        shared: bool = False,
        limit: int = 0,
        delay: Duration = 0,
        meta: Meta = None,
        at_least: Duration = 0,
        across_shards: bool = False,
    ) -> None:
        self.names = names
        self.spans = across_shards
        """Whether the names may be of several shards, and so be acquired in several steps."""
        self.names_encoded = _encoded(names)
        self.timeout = wait_of(timeout)
        self._options = (
            _ttl_ms(ttl),
            "S" if shared else "X",
            limit,
            _ms_of("delay", delay),
            text_of(meta),
            _ms_of("at_least", at_least),
        )
        self.prefix = self.encode(self.timeout)

    def encode(self, wait: float | None) -> bytes:
        """An acquire as far as its owner and request id; `wait` in seconds, None for ever."""
        count, words = options(None if wait is None else ms_of(wait), *self._options)
        many = len(self.names)
        if many == 1:
            return b"*%d\r\n$12\r\nLOCK.ACQUIRE\r\n%b%b" % (_OWN_WORDS + 1 + count, self.names_encoded, words)
        head = b"*%d\r\n$13\r\nLOCK.MACQUIRE\r\n" % (_OWN_WORDS + 1 + many + count)
        return head + number(many) + self.names_encoded + words

    @property
    def label(self) -> str:
        """The names, as messages show them."""
        return ", ".join(map(repr, self.names))

    @property
    def is_delayed(self) -> bool:
        """Whether the names stay ungranted for a while after an unclean end."""
        return self._options[3] > 0

    @property
    def ttl(self) -> float | None:
        """Seconds after which a hold ends unless extended; None: with its session."""
        return self._options[0] / 1000 or None

    @property
    def shared(self) -> bool:
        """Whether it is held together with other shared holders."""
        return self._options[1] == "S"

    @property
    def limit(self) -> int:
        """How many may hold it at once; 0 if it is no semaphore."""
        return self._options[2]

    @property
    def meta(self) -> str:
        """What `explain` shows with the hold."""
        return self._options[4]

    @property
    def at_least(self) -> float:
        """Seconds from the grant for which no other owner gets the names, however the hold ends; 0 for none."""
        return self._options[5] / 1000

    def waiting(self, timeout: Duration | None) -> "Terms":
        """The same terms with another time to wait."""
        return self.part(self.names, timeout)

    def part(self, names: tuple[str, ...], timeout: Duration | None) -> "Terms":
        """The same terms for some of the names, with a time to wait of its own."""
        other = Terms.__new__(Terms)
        if names is self.names:
            other.names, other.names_encoded = self.names, self.names_encoded
        else:
            other.names, other.names_encoded = names, _encoded(names)
        other._options, other.spans = self._options, self.spans
        other.timeout = wait_of(timeout)
        other.prefix = other.encode(other.timeout)
        return other

    def saying(self, meta: str) -> "Terms":
        """The same terms with other metadata."""
        other = Terms.__new__(Terms)
        other.names, other.names_encoded = self.names, self.names_encoded
        other._options, other.spans = (*self._options[:4], meta, self._options[5]), self.spans
        other.timeout = self.timeout
        other.prefix = other.encode(other.timeout)
        return other


def admit(terms: Terms, given: Guarantees) -> None:
    """Raise `Unsupported` for terms that a backend cannot give."""
    if terms._options == _PLAIN and len(terms.names) == 1:
        return
    lacks = []
    if len(terms.names) > 1 and not given.multi:
        lacks.append("several names in one step")
    if terms.shared and not given.shared:
        lacks.append("shared locks")
    if terms.limit and not given.semaphores:
        lacks.append("semaphores")
    if terms.is_delayed and not given.delays:
        lacks.append("a delay after an unclean end")
    if terms.at_least and not given.at_least:
        lacks.append("a name that stays taken for at_least, though the process has ended")
    if lacks:
        raise Unsupported(f"{given.backend}:// cannot give {' or '.join(lacks)}; the Fencehold service can")


def one(name: str) -> tuple[str, ...]:
    """One name, checked."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"lock name must be a non-empty str, got {name!r}")
    return (name,)


def several(names: Iterable[str]) -> tuple[str, ...]:
    """Several names, each once, in the one order every client uses."""
    if isinstance(names, str):
        raise UsageError(f"names must be several str, got one: {names!r}; use client.lock() for a single name")
    checked = tuple(sorted({one(name)[0] for name in names}))
    if not checked:
        raise UsageError("names must be at least one str, got none")
    return checked


def permits(limit: int) -> int:
    """How many may hold a semaphore at once, checked: 0 would be sent as no limit, which is a plain lock."""
    if not isinstance(limit, int) or limit < 1:
        raise UsageError(f"limit is a whole number, 1 or more, not {limit!r}")
    return limit


def wait_of(timeout: Duration | None, *, blocking: bool = True) -> float | None:
    """How long to wait: seconds, or None for ever; -1 means the same."""
    if not blocking:
        if timeout not in (None, -1, 0):
            raise UsageError("a call that does not block takes no timeout")
        return 0.0
    if timeout is None or timeout == -1:
        return None
    return seconds_of("timeout", timeout, none="without limit")


def ttl_of(ttl: Duration | None) -> float | None:
    """How long a hold lasts: seconds, or None for as long as its session."""
    return None if ttl is None else seconds_of("ttl", ttl, least=LEAST_S, none="as long as its session")


def text_of(meta: Meta) -> str:
    """Metadata as the text that is sent."""
    if meta is None or isinstance(meta, str):
        return meta or ""
    return json.dumps(meta, separators=(",", ":"), default=str)


def ms_of(seconds: float) -> int:
    """Seconds in the unit of the wire."""
    return max(0, round(seconds * 1000))


def _encoded(names: tuple[str, ...]) -> bytes:
    return b"".join([bulk(name.encode()) for name in names])


def _ms_of(option: str, given: Duration) -> int:
    # Nearly always it was left out.
    return 0 if type(given) is int and not given else ms_of(seconds_of(option, given))


def _ttl_ms(ttl: Duration | None) -> int:
    return 0 if ttl is None else ms_of(ttl_of(ttl) or 0)
