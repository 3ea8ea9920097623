"""Elections, for threads. See the async ones for the rules; here a body is not cancelled: it asks."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, cast, overload

from fencehold.client.admission import admit
from fencehold.client.aio.election import CLOSED, is_another
from fencehold.client.blocking.hold import Claim, Hold
from fencehold.client.blocking.lines import Line
from fencehold.client.blocking.lock import Held
from fencehold.client.blocking.portal import Portal, one_by_one
from fencehold.client.candidacy import AWAY, UNSURE, Pauses, is_loss_of
from fencehold.durations import Duration
from fencehold.errors import NotOwner, UsageError
from fencehold.locks.hold import Body
from fencehold.locks.log import campaign_failed
from fencehold.locks.terms import Forever, Terms
from fencehold.locks.trust import Grant
from fencehold.locks.views import A_FEW, Holder


class Leadership(Hold):
    """Being elected. The fence is the epoch of the term: it grows with every leader."""

    __slots__ = ()

    @property
    def epoch(self) -> int:
        """The number of this term."""
        return self.fence


class Turn(Claim):
    """A term of `Election.terms`, to be entered with `with`: leaving it resigns. That it was lost, as `check`
    tells the body, is not raised beyond it: the loop campaigns again."""

    __slots__ = ("_body",)

    def __init__(self, portal: Portal, grant: Grant) -> None:
        super().__init__(portal, grant)
        self._body: Body[Claim] | None = None

    def __enter__(self) -> Self:
        if self._body is not None:
            raise UsageError(f"this term of {self.name!r} was entered before: the loop gives the next one")
        body = self._body = Body(self)
        try:
            body.enter()
        except BaseException:
            body.leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Resign. A loss of this term is swallowed, anything else goes on."""
        assert self._body is not None
        try:
            self._body.leave()
            # Raised only for a body that ended well: it is over, or will be as soon as the service is back.
            with suppress(*UNSURE):
                self._leave(error)
        finally:
            # After an interrupt, too, whatever that kept from being done.
            self._body.leave()
            self._abandon()
        return is_loss_of(self._grant, error)

    def _end(self) -> None:
        """Resign, if that was not done."""
        with suppress(*UNSURE):
            if not self._grant.ending:
                self.release()

    def _end_soon(self) -> None:
        """The same, without waiting: a loop that was forgotten may be collected by the portal's own thread."""
        if not self._grant.ending:
            self._portal.run_soon(self._released())

    async def _released(self) -> None:
        if not self._grant.ending:
            await self._portal.channel.release(self._grant)


class Term(Turn, Leadership):
    """A term of `Election.terms` where state is protected: its fence is its epoch."""

    __slots__ = ()


class Election(Generic[Held]):
    """One leader at a time for a name, and a way to see who it is."""

    __slots__ = ("_held", "_is_closed", "_line", "_term", "_terms", "name")

    def __init__(self, line: Line, terms: Terms, held: type[Held], is_closed: Callable[[], bool]) -> None:
        admit(terms, line.guarantees)
        self._line = line
        self._terms = terms
        self._held = held
        self._is_closed = is_closed
        self._term: Claim | None = None
        self.name = terms.names[0]

    @overload
    def campaign(self, *, timeout: Forever = None) -> Held: ...

    @overload
    def campaign(self, *, timeout: Duration | None) -> Held | None: ...

    def campaign(self, *, timeout: Duration | None = None) -> Held | None:
        """Wait to be elected; None if that did not happen in time. Resign, or lose it, to end the term."""
        term = self._line.portal().acquire(self._held, self._terms.waiting(timeout))
        if term is not None:
            self._term = term
        return term

    @overload
    def terms(self: "Election[Leadership]") -> Generator[Term, None, None]: ...

    @overload
    def terms(self: "Election[Claim]") -> Generator[Turn, None, None]: ...

    def terms(self) -> Generator[Turn, None, None]:
        """Campaign again and again: ``for term in election.terms():`` with ``with term:``.

        A body that finds its term lost, by `check`, ends, and the loop goes on; so it does when the body ends.
        What else the body raises ends the loop. It ends by itself when the client is closed.

        Raises:
            Unavailable: at the beginning; once it was reached, a service that is away is waited for.
        """
        self._line.portal().ready()
        pauses = Pauses()
        while (term := self._next_term(pauses)) is not None:
            try:
                yield term
            except GeneratorExit:
                term._end_soon()
                raise
            try:
                term._end()
            finally:
                # After an interrupt, too.
                term._abandon()
            pauses.reset()

    def _next_term(self, pauses: Pauses) -> Turn | None:
        """The next term of this candidate; None if the client is closed."""
        while not self._is_closed():
            try:
                term = self._campaign(self._line.portal(), pauses)
            except UsageError:
                if not self._is_closed():
                    raise
            else:
                if term is not None:
                    self._term = term
                    return term
        return None

    def _campaign(self, portal: Portal, pauses: Pauses) -> Turn | None:
        """A term; None if the service is away, after a pause, which ends when the client is closed."""
        kind: type[Turn] = Term if issubclass(self._held, Leadership) else Turn
        try:
            return portal.acquire(kind, self._terms)
        except AWAY as error:
            if not self._is_closed():
                campaign_failed(self.name, error)
                portal.run(asyncio.sleep(pauses.next()))
            return None

    def resign(self) -> None:
        """End this client's term.

        Raises:
            NotOwner: it has none.
            HoldLost: it had lost it before.
        """
        term = self._term
        if term is None:
            raise NotOwner(f"this client does not lead {self.name!r}")
        try:
            term.release()
        finally:
            # Not if an interrupt came first: then it leads still.
            if term._grant.ending and self._term is term:
                self._term = None

    def leader(self) -> Holder | None:
        """Who leads at this moment; None if nobody does."""
        return next(iter(self._line.portal().explain(self.name, limit=A_FEW).holders), None)

    def observe(self) -> Generator[Holder | None, None, None]:
        """See who leads, now and whenever that changes; None while nobody does. Ends when the client is closed."""
        portal = self._line.portal()
        context = portal.channel.changes(self.name)
        changes = portal.run(context.__aenter__())
        try:
            seen = self.leader()
            yield seen
            for _ in one_by_one(portal, changes):
                try:
                    leader = self.leader()
                except CLOSED:
                    return
                if is_another(leader, seen):
                    seen = leader
                    yield seen
        finally:
            portal.run_soon(cast("Coroutine[Any, Any, Any]", context.__aexit__(None, None, None)))
