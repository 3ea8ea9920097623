"""The store in a SQLite file: the port of `lease`, as parts of transactions on the worker's thread."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from fencehold.backends.lease.explanation import explanation, holder, stamp_of, waiting
from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.backends.sqlite.file import LeaseFile, SqliteAddress
from fencehold.backends.sqlite.rows import NS, LeaseRows, SeenRow, WantedLease
from fencehold.backends.sqlite.worker import SqliteWorker
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.guarantees import Guarantees
from fencehold.locks.views import Explanation

_TOGETHER_MAX = 500
"""Leases renewed in one transaction: others must have their turn between."""
_SLACK_S = 3.0
"""What a call may take beyond waiting for other processes: a slow disk does not hang."""


class SqliteStore:
    """One file, one thread."""

    thread_store = None

    def __init__(self, address: SqliteAddress, settings: Settings) -> None:
        self._address = address
        self._who = settings.who
        self._worker: SqliteWorker | None = None
        self.on_wake: Callable[[str, str], None] = lambda name, token: None
        self.guarantees = Guarantees(
            backend="sqlite",
            linearizable=True,
            fenced=True,
            fence_survives_failover=True,
            fair=True,
            survives_failover=False,
            frees_on_crash=settings.ttl,
            clocks="durations, by the one clock of the machine that counts from its start; no time of day",
            semaphores=True,
            at_least=True,
        )

    async def open(self) -> None:
        worker = SqliteWorker(LeaseFile(self._address), self._address.timeout + _SLACK_S)
        try:
            await worker.do(glance=lambda rows: rows.next_token(""))
        except BaseException:
            await asyncio.shield(worker.end())
            raise
        self._worker = worker

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.end()

    async def take(self, ask: Ask, ttl: float, *, waits: bool) -> Taken | Busy:
        seen = stamp_of(self._who, ask)
        wanted = WantedLease(ask.name, ask.token, ask.terms.limit, int(ttl * NS), seen, waits)
        outcome = await self._at.do(partial(_take, wanted), glance=partial(_glance, wanted))
        return cast("Taken | Busy", outcome)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[bool]:
        kept: list[bool] = []
        for begin in range(0, len(leases), _TOGETHER_MAX):
            some = [(lease.ask.name, lease.ask.token) for lease in leases[begin : begin + _TOGETHER_MAX]]
            try:
                kept += await self._at.do(partial(_renew, some, int(ttl * NS)))
            except Unavailable as error:
                raise OutcomeUnknown(f"only {begin} leases were renewed: {error}") if begin else error from error
        return kept

    async def release(self, lease: Lease) -> bool:
        name = lease.ask.name
        was_there, next_token = await self._at.do(partial(_give, name, lease.ask.token))
        self._wake(name, next_token)
        return bool(was_there)

    async def withdraw(self, ask: Ask) -> None:
        self._wake(ask.name, await self._at.do(partial(_leave, ask.name, ask.token)))

    async def look(self, name: str) -> Explanation:
        holders, queue = await self._at.do(glance=lambda rows: (rows.holders(name), rows.queue(name)))
        return explanation(
            name,
            [
                holder(
                    row.stamp,
                    fence=row.fence,
                    mode=_mode(row),
                    limit=row.permits,
                    held_for=row.age,
                    left=row.left,
                )
                for row in holders
            ],
            [
                waiting(place, row.stamp, mode=_mode(row), name=name, waited_for=row.age, left=None)
                for place, row in enumerate(queue)
            ],
        )

    async def break_hold(self, name: str, fence: int) -> int:
        above, next_token = await self._at.do(partial(_break, name, fence))
        self._wake(name, next_token)
        return int(above)

    @property
    def _at(self) -> SqliteWorker:
        if self._worker is None:
            raise Unavailable("the client is closed")
        return self._worker

    def _wake(self, name: str, token: str) -> None:
        if token:
            self.on_wake(name, token)


def _glance(wanted: WantedLease, rows: LeaseRows) -> Busy | None:
    return rows.glance(wanted)


def _take(wanted: WantedLease, rows: LeaseRows) -> Taken | Busy:
    return rows.take(wanted)


def _renew(some: Sequence[tuple[str, str]], ttl_ns: int, rows: LeaseRows) -> list[bool]:
    return [rows.renew(name, token, ttl_ns) for name, token in some]


def _give(name: str, token: str, rows: LeaseRows) -> tuple[bool, str]:
    return rows.release(name, token), rows.next_token(name)


def _leave(name: str, token: str, rows: LeaseRows) -> str:
    rows.withdraw(name, token)
    return rows.next_token(name)


def _break(name: str, fence: int, rows: LeaseRows) -> tuple[int, str]:
    return rows.break_hold(name, fence), rows.next_token(name)


def _mode(row: SeenRow) -> str:
    return "P" if row.permits else "X"
