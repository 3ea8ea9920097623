"""Elections: one leader at a time for a name. The fence of a leader's hold is the epoch of its term."""

from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Generic, Self, overload

from fencehold.client.aio.hold import Claim, Hold
from fencehold.client.aio.lock import Held, acquire_as
from fencehold.client.aio.routes import Carrier, Route, Routed, current_task, pause
from fencehold.client.candidacy import AWAY, CLOSED, UNSURE, Pauses, is_another, is_loss_of
from fencehold.durations import Duration
from fencehold.errors import NotOwner, UsageError
from fencehold.locks.hold import Body
from fencehold.locks.log import campaign_failed
from fencehold.locks.terms import Forever, Terms, admit
from fencehold.locks.trust import Grant
from fencehold.locks.views import A_FEW, Holder


class Leadership(Hold):
    """The hold of an elected leader. The fence is the epoch of the term: it grows with every leader."""

    __slots__ = ()

    @property
    def epoch(self) -> int:
        """The number of this term."""
        return self.fence


class Turn(Claim):
    """A term of `Election.terms`, to be entered with `async with`: leaving it resigns.

    Losing it cancels the body of an async one; a blocking one finds out by `check`. The loss is not raised outside
    the body: the loop campaigns again.
    """

    __slots__ = ("_body",)

    def __init__(self, carrier: Carrier, grant: Grant) -> None:
        super().__init__(carrier, grant)
        self._body: Body[Claim] | None = None

    async def __aenter__(self) -> Self:
        if self._body is not None:
            raise UsageError(f"this term of {self.name!r} was already entered: take the next one from the loop")
        if self._grant.ending == "released":
            raise self._grant.why()
        self._enter_body(current_task())  # ASYNC
        body = self._body = Body(self)
        try:
            body.enter()
        except BaseException:
            body.leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Resign. A loss of this term is suppressed, anything else is raised."""
        assert self._body is not None
        try:
            self._body.leave()
            await self._leave(error)
        except UNSURE:
            # Raised for a body that ended well, or was cancelled for the loss only.
            return True
        except BaseException:
            # Interrupted: do what that may have prevented.
            self._body.leave()
            self._on_interrupted()
            raise
        return is_loss_of(self._grant, error)

    async def _end(self) -> None:
        """Resign, if that was not done."""
        try:
            if not self._grant.ending:
                await self.release()
        except UNSURE:
            pass
        except BaseException:
            self._on_interrupted()
            raise


class Term(Turn, Leadership):
    """A term of `Election.terms` where state is protected: its fence is its epoch."""

    __slots__ = ()


class Election(Routed, Generic[Held]):
    """One leader at a time for a name, and a way to see who it is."""

    __slots__ = ("_held", "_is_closed", "_term", "_terms", "name")

    def __init__(self, route: Route, terms: Terms, held: type[Held], is_closed: Callable[[], bool]) -> None:
        admit(terms, route.guarantees)
        super().__init__(route)
        self._terms = terms
        self._held = held
        self._is_closed = is_closed
        self._term: Claim | None = None
        self.name = terms.names[0]

    @overload
    async def campaign(self, *, timeout: Forever = None) -> Held: ...

    @overload
    async def campaign(self, *, timeout: Duration | None) -> Held | None: ...

    async def campaign(self, *, timeout: Duration | None = None) -> Held | None:
        """Wait to be elected; None if that did not happen in time. Resign, or lose it, to end the term."""
        term = await acquire_as(self._carrier, self._held, self._terms.waiting(timeout))
        if term is not None:
            self._term = term
        return term

    @overload
    def terms(self: "Election[Leadership]") -> AsyncGenerator[Term, None]: ...

    @overload
    def terms(self: "Election[Claim]") -> AsyncGenerator[Turn, None]: ...

    async def terms(self) -> AsyncGenerator[Turn, None]:
        """Campaign again and again: ``async for term in election.terms():`` with ``async with term:``.

        The loop continues when a body's term is lost, and when the body ends by itself. Any other exception of the
        body ends the loop. It ends by itself when the client is closed.

        Raises:
            Unavailable: at the beginning; once the service was reached, the loop waits for it when it is down.
        """
        await self._carrier.ready()
        pauses = Pauses()
        while (term := await self._next_term(pauses)) is not None:
            try:
                yield term
            except BaseException:
                await term._end()  # ASYNC
                # BLOCKING: term._release_soon()
                raise
            await term._end()

    async def _next_term(self, pauses: Pauses) -> Turn | None:
        """The next term of this candidate; None if the client is closed."""
        kind: type[Turn] = Term if issubclass(self._held, Leadership) else Turn
        while not self._is_closed():
            try:
                term = await acquire_as(self._carrier, kind, self._terms)
            except AWAY as error:
                if not self._is_closed():
                    campaign_failed(self.name, error)
                    await pause(self._carrier, pauses.next())
            except UsageError:
                if not self._is_closed():
                    raise
            else:
                pauses.reset()
                self._term = term
                return term
        return None

    async def resign(self) -> None:
        """End this client's term.

        Raises:
            NotOwner: it has none.
            HoldLost: it had lost it before.
        """
        term = self._term
        if term is None:
            raise NotOwner(f"this client does not lead {self.name!r}")
        try:
            await term.release()
        finally:
            # Not if an interrupt came first: then it leads still.
            if term._grant.ending and self._term is term:
                self._term = None

    async def leader(self) -> Holder | None:
        """The leader at this moment; None if there is none."""
        return next(iter((await self._carrier.explain(self.name, limit=A_FEW)).holders), None)

    async def observe(self) -> AsyncGenerator[Holder | None, None]:
        """The leader, now and whenever that changes; None while there is none. Ends when the client is closed."""
        async with self._carrier.changes(self.name) as changes:
            seen = await self.leader()
            yield seen
            async for _ in changes:
                try:
                    leader = await self.leader()
                except CLOSED:
                    return
                if is_another(leader, seen):
                    seen = leader
                    yield seen
