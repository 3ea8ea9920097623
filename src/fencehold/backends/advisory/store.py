"""The store: a lock of the session for each name that is held.

1. The key of a name is its 64-bit BLAKE2b hash. Two names with the same key are one lock; among a million names
   the chance that there are any such is one in thirty million.
2. *The server lets one session take a lock twice.* So what this client holds is tracked here, and never taken
   again; the waiters of one client for a name queue here, and only the first one asks the server.
3. *The server ends a hold only with the session.* A ttl is enforced by a timer here, after the trust is over.
4. Everything is sent on one connection, in order: what withdraws an ask comes after it.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b

from fencehold.backends.advisory.notes import Notes
from fencehold.backends.advisory.session import PING, Session, patience
from fencehold.backends.lease.explanation import SeenHolder, explanation, holder, stamp
from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.drivers.address import Scheme, identifier, word
from fencehold.drivers.postgres.address import FORM, PostgresAddress
from fencehold.drivers.postgres.failures import Rejected, refusal
from fencehold.drivers.postgres.pipeline import Param, Pipeline, Row
from fencehold.errors import OutcomeUnknown, Refused, Unavailable, Unsupported, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.loss_reasons import LossKind, LossReason
from fencehold.locks.views import Explanation

SCHEMA = "fencehold"
TABLE = "advisory"
CLOCKS = "durations by the client's monotonic clock, and by the server's kernel for a client that is gone"

SCHEME = Scheme(
    names=("postgresql+advisory",),
    form=FORM.replace("postgresql", "postgresql+advisory"),
    port=5432,
    options=(
        # Together they are part of the name of a channel, which may have 63 characters.
        identifier("schema", SCHEMA, length_max=20),
        identifier("table", TABLE, length_max=20),
        word("pooler", ("detect", "session")),
    ),
    hosts_min=0,
    has_usual_host=True,
)
_FAR_S = 5.0
_BREAK = "break "
_FORCED = LossReason("it was force-released", LossKind.BROKEN)
_BREAKING_S = 1.0
_BREAKING_PAUSE_S = 0.02


def key_of(name: str) -> int:
    """The key of a name: what any other program has to pass to `pg_advisory_lock`."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


class AdvisoryStore:
    """Belongs to the event loop it was opened on."""

    thread_store = None

    def __init__(self, address: PostgresAddress, settings: Settings) -> None:
        self.on_wake: Callable[[str, str], None] = _ignore
        self.on_gone: Callable[[str, str], None] = _ignore
        """Called with a token, or "" for all, and a reason: it is no longer held."""
        self._address = address
        self._settings = settings
        self._notes = Notes(address.options["schema"], address.options["table"])
        self._patience = patience(settings.ttl, settings.connect_timeout)
        self._asks: dict[str, Ask] = {}
        """By token: whatever is held, waiting or in flight."""
        self._held: dict[int, dict[str, bool]] = {}
        """By key and token, what is held or in flight; and whether it is shared."""
        self._queues: dict[int, dict[str, None]] = {}
        """By key, the waiters of this client, in order."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            backend="postgresql+advisory",
            # A server that ends a session releases its locks before the client, perhaps cut off, can know.
            linearizable=False,
            fenced=False,
            fence_survives_failover=False,
            fair=False,
            survives_failover=False,
            frees_on_crash=self._patience.frees_s,
            clocks=CLOCKS,
            shared=True,
        )

    async def open(self) -> None:
        self._session = Session(
            self._address,
            self._notes,
            self._patience,
            self._settings.connect_timeout,
            is_pooled=self._address.options["pooler"] == "session",
        )
        self._session.on_word, self._session.on_end = self._on_word, self._on_end
        self._session.needed = lambda: bool(self._held)
        try:
            await self._session.pipeline()
        except BaseException:
            await self._session.close()
            raise

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        await self._session.close()

    # Holding.

    async def take(self, ask: Ask, ttl: float, *, waits: bool) -> Taken | Busy:
        key, shared = key_of(ask.name), ask.terms.shared
        was_there = ask.token in self._queues.get(key, ())
        self._asks[ask.token] = ask
        if waits:
            self._queues.setdefault(key, {})[ask.token] = None
        if not self._is_first(key, ask.token, shared):
            self._forget(ask, waits=waits)
            return Busy(_FAR_S)
        self._held.setdefault(key, {})[ask.token] = shared
        try:
            is_ours = await self._try(ask, key, waits=waits)
        except Unavailable:
            self._unheld(key, ask)
            # Nothing was sent, so nothing will be withdrawn.
            self._forget(ask, waits=was_there)
            raise
        except (OutcomeUnknown, Refused, Unsupported, UsageError):
            self._unheld(key, ask)
            raise
        if not is_ours:
            self._unheld(key, ask)
            self._forget(ask, waits=waits)
            return Busy()
        self._dequeue(key, ask.token)
        if ask.terms.ttl is not None:
            self._end_in(ask, ttl)
        if shared:
            self._wake_first(key, ask.name)
        return Taken()

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[bool]:
        await self._ask(PING)
        there = [lease.ask.token in self._held.get(key_of(lease.ask.name), ()) for lease in leases]
        for lease, is_there in zip(leases, there, strict=True):
            if is_there and lease.is_kept:
                self._cancel_timer(lease.ask.token)
            elif is_there:
                self._end_in(lease.ask, ttl)
        return there

    async def release(self, lease: Lease) -> bool:
        key, token = key_of(lease.ask.name), lease.ask.token
        if token not in self._held.get(key, ()):
            return False
        answer = self._free(await self._session.pipeline(), key, lease.ask)
        ((was_there, _),) = await self._answered(answer)
        return was_there == b"t"

    async def withdraw(self, ask: Ask) -> None:
        self.drop(ask)

    def drop(self, ask: Ask) -> None:
        """Remove whatever an ask has. Later requests come after it; and if the session ends before that is sent,
        all it had ends with it. So no caller needs to wait for it."""
        key = key_of(ask.name)
        self._dequeue(key, ask.token)
        if self._asks.pop(ask.token, None) is not None and self._session.current is not None:
            self._session.current.ask(self._notes.free, key, ask.token)
        self._unheld(key, ask)
        self._wake_first(key, ask.name)

    # Seeing.

    async def look(self, name: str) -> Explanation:
        holders: list[SeenHolder] = []
        for stamped, mode, since_s, pid, _, application in await self._ask(self._notes.look, key_of(name)):
            said = stamped.decode() if stamped is not None else _stranger(pid, application)
            kind = "S" if mode == b"ShareLock" else "X"
            held_for = None if since_s is None else float(since_s)
            holders.append(holder(said, fence=0, mode=kind, limit=0, held_for=held_for, left=None))
        return explanation(name, holders)

    async def break_hold(self, name: str, fence: int) -> int:
        """The holder is notified to release it; if it does not, its connection is terminated, and all it holds
        with it."""
        asked = await self._holders(name)
        for pid, token in asked:
            await self._ask(b"SELECT pg_notify($1, $2)", f"{self._notes.channel}{pid}", f"{_BREAK}{token}")
        with suppress(TimeoutError):
            async with asyncio.timeout(_BREAKING_S):
                # Its own client releases it, without a notification to us.
                while asked.intersection(await self._holders(name)):  # noqa: ASYNC110
                    await asyncio.sleep(_BREAKING_PAUSE_S)
        for pid, _ in asked.intersection(await self._holders(name)):
            await self._ask(b"SELECT pg_terminate_backend($1)", pid)
        return 1 if asked else 0

    async def _holders(self, name: str) -> set[tuple[int, str]]:
        rows = await self._ask(self._notes.look, key_of(name))
        return {(int(pid or 0), (token or b"").decode()) for _, _, _, pid, token, _ in rows}

    # Local state.

    def _is_first(self, key: int, token: str, shared: bool) -> bool:
        """Whether no other waiter of this client is before it, and none holds what it wants."""
        held = self._held.get(key)
        if next(iter(self._queues.get(key, (token,)))) != token:
            return False
        return not held or token in held or (shared and all(held.values()))

    def _unheld(self, key: int, ask: Ask) -> None:
        self._cancel_timer(ask.token)
        held = self._held.get(key, {})
        held.pop(ask.token, None)
        if not held:
            self._held.pop(key, None)
        if next(iter(self._queues.get(key, (ask.token,)))) != ask.token:
            self._wake_first(key, ask.name)

    def _dequeue(self, key: int, token: str) -> None:
        queue = self._queues.get(key, {})
        queue.pop(token, None)
        if not queue:
            self._queues.pop(key, None)

    def _forget(self, ask: Ask, *, waits: bool) -> None:
        if not waits:
            self._asks.pop(ask.token, None)
            self._dequeue(key_of(ask.name), ask.token)

    def _wake_first(self, key: int, name: str) -> None:
        token = next(iter(self._queues.get(key, ())), None)
        if token is not None:
            self.on_wake(name, token)

    # Requests to the server.

    async def _try(self, ask: Ask, key: int, *, waits: bool) -> bool:
        notes, shared = self._notes, ask.terms.shared
        stamped = stamp(self._settings.who, ask.owner, ask.terms.meta)
        try:
            pipeline = await self._session.pipeline()
            statement = notes.take_shared if shared else notes.take
            ((ok,),) = await pipeline.ask(statement, key, ask.token, stamped, waits)
        except Rejected as error:
            # A lock that a statement took stays taken, even if the statement fails later.
            pipeline.ask(notes.undo_shared if shared else notes.undo, key)
            raise refusal(error, self._address) from error
        if pipeline.ended.is_set():
            raise OutcomeUnknown(f"{self._address}: the connection was lost: {pipeline.why}")
        return ok == b"t"

    def _free(self, pipeline: Pipeline, key: int, ask: Ask) -> "asyncio.Future[list[Row]]":
        answer = pipeline.ask(self._notes.free, key, ask.token)
        self._asks.pop(ask.token, None)
        self._unheld(key, ask)
        return answer

    async def _ask(self, statement: bytes, *params: Param) -> list[Row]:
        return await self._answered((await self._session.pipeline()).ask(statement, *params))

    async def _answered(self, answer: "asyncio.Future[list[Row]]") -> list[Row]:
        try:
            return await answer
        except Rejected as error:
            raise refusal(error, self._address) from error

    # Events.

    def _end_in(self, ask: Ask, ttl: float) -> None:
        self._cancel_timer(ask.token)
        self._timers[ask.token] = asyncio.get_running_loop().call_later(ttl, self.drop, ask)

    def _cancel_timer(self, token: str) -> None:
        timer = self._timers.pop(token, None)
        if timer is not None:
            timer.cancel()

    def _on_word(self, word: str) -> None:
        is_broken, token = word.startswith(_BREAK), word.removeprefix(_BREAK)
        ask = self._asks.get(token)
        if ask is not None and is_broken:
            self.on_gone(token, _FORCED)
            self.drop(ask)
        elif ask is not None:
            self.on_wake(ask.name, token)

    def _on_end(self, why: str) -> None:
        """The session is over, and all it held with it. Waiters continue in the next one."""
        waiting = {token for queue in self._queues.values() for token in queue}
        self._held.clear()
        for token in tuple(self._timers):
            self._cancel_timer(token)
        self._asks = {token: ask for token, ask in self._asks.items() if token in waiting}
        self.on_gone("", LossReason(f"the connection that held it was lost: {why}", LossKind.SESSION))
        for queue in tuple(self._queues.values()):
            token = next(iter(queue))
            self.on_wake(self._asks[token].name, token)


def _stranger(pid: bytes | None, application: bytes | None) -> str:
    """The stamp of a holder without a note."""
    who = {"client": (application or b"").decode(), "pid": int(pid or 0)}
    return stamp(json.dumps(who), "", "")


def _ignore(_one: str, _other: str) -> None:
    pass
