"""An entry: what one ask has, or may have, in the queue of its name."""

import asyncio

from fencehold.backends.port import Ask
from fencehold.backends.zookeeper.places import Place, before, blockers, in_order, other_limit, place_of, stem_of
from fencehold.backends.zookeeper.session import Session, Told
from fencehold.errors import UsageError


class Entry:
    """Known by the token of its ask, which is in what its node is called: so it can be found again."""

    __slots__ = (
        "ahead",
        "ask",
        "data",
        "fence",
        "is_doubtful",
        "parent",
        "path",
        "session",
        "stem",
        "timer",
        "told",
    )

    def __init__(self, ask: Ask, parent: str, data: bytes) -> None:
        self.ask = ask
        self.parent = parent
        self.data = data
        self.stem = stem_of(ask.token, shared=ask.terms.shared, limit=ask.terms.limit)
        self.session: Session | None = None
        """The one in which it may have a node."""
        self.path = ""
        """Where its node is, once that is known."""
        self.is_doubtful = False
        """Whether it may have a node without our knowing where."""
        self.fence = 0
        self.ahead: list[Place] | None = None
        """Those before it; None when that is to be looked up."""
        self.timer: asyncio.TimerHandle | None = None
        """Until its holder watches it."""
        self.told: Told | None = None
        """Who is told when it goes, once its holder watches it."""

    @property
    def node(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def may_be_there(self) -> bool:
        """Whether servers may have a node of it."""
        return self.session is not None and not self.session.is_over and bool(self.path or self.is_doubtful)

    def begin(self, session: Session) -> None:
        """It is about to be made in a session. What it had in an earlier one is gone with that."""
        self.leave()
        self.session = session
        self.is_doubtful = True
        session.claims += 1

    def leave(self) -> None:
        """It has no node any more."""
        if self.session is not None:
            self.session.claims -= 1
        self.session, self.path, self.is_doubtful, self.ahead = None, "", False, None

    def found(self, path: str, fence: int) -> None:
        """Its node is known."""
        self.path, self.fence, self.is_doubtful = path, fence, False

    def see(self, nodes: list[str]) -> bool:
        """These are the children of its parent; says whether it is among them.

        Raises:
            UsageError: the name is a semaphore with another limit.
        """
        self.ahead = before(in_order(nodes), self.node)
        limit = self.ask.terms.limit
        if self.ahead and limit and (other := other_limit(self.ahead, limit)):
            raise UsageError(
                f"{self.ask.terms.label} is in use as a semaphore with a limit of {other}, not {limit}"
            )
        return self.ahead is not None

    def own_among(self, nodes: list[str]) -> str:
        """Which of these is its own; empty if none is."""
        token = self.ask.token
        return next((node for node in nodes if (place := place_of(node)) and place.token == token), "")

    def blockers(self) -> list[str]:
        """The paths of those of whom one must go before it is granted."""
        terms = self.ask.terms
        mode = "p" if terms.limit else "s" if terms.shared else "x"
        return [f"{self.parent}/{place.node}" for place in blockers(self.ahead or (), mode, terms.limit)]

    def unwatch(self) -> None:
        """Nobody looks after it any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.told is not None and self.session is not None:
            self.session.unwatch(self.path, self.told)
            self.told = None
