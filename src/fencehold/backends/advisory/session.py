"""The session: one connection; all that a client holds ends with it.

1. *The server releases what is held when it notices that the connection has ended*: at once if the process ended;
   if the machine or the network is gone, after `Patience.frees_s`, which is set for the session.
2. *The client's trust ends first.* It sends a heartbeat at least every third of the ttl, and disconnects if no
   reply comes in time; the server waits for longer than that before it ends the session.
3. What ends the connection from the server's side ends the holds before the client can know: the loss is notified
   as soon as the client notices it.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from fencehold.backends.advisory.notes import Notes
from fencehold.drivers.postgres.address import PostgresAddress
from fencehold.drivers.postgres.failures import Rejected
from fencehold.drivers.postgres.pipeline import Pipeline, ask_safely, open_pipeline
from fencehold.drivers.postgres.pool import Reconnect
from fencehold.errors import FenceholdError, PermissionDenied, Unsupported

PING = b"SELECT 1"
_POOLED = (
    "there is a connection pooler in between; in transaction mode, locks would be held by any client that gets "
    "the connection next: connect to the server itself or, if the pooler is in session mode, add "
    "pooler=session to the URL"
)


class Patience(NamedTuple):
    """How long each side waits for the other."""

    ttl: float
    answer_s: float
    """The client, for a reply."""
    idle_s: int
    """The server, before it probes a silent client (TCP keep-alive)…"""
    again_s: int
    """…before it probes again…"""
    times: int = 3
    """…and how often."""

    @property
    def frees_s(self) -> float:
        """After so many seconds the server has ended the session of a client that vanished."""
        return float(self.idle_s + self.again_s * self.times)

    @property
    def settings(self) -> dict[str, str]:
        """As parameters of the server."""
        return {
            "tcp_keepalives_idle": str(self.idle_s),
            "tcp_keepalives_interval": str(self.again_s),
            "tcp_keepalives_count": str(self.times),
            "tcp_user_timeout": str(round(self.frees_s * 1_000)),
            "statement_timeout": f"{max(1_000, round(self.answer_s * 1_000))}",
            "idle_session_timeout": "0",
            # Plans are made once, and not compiled: running the statements takes less time than either.
            "plan_cache_mode": "force_generic_plan",
            "jit": "off",
            # Notes are invalid after a crash.
            "synchronous_commit": "off",
        }


def patience(ttl: float, connect_timeout: float) -> Patience:
    """For a client with this ttl."""
    return Patience(ttl, min(connect_timeout, max(ttl / 3, 1.0)), math.ceil(max(ttl, 2.0)), math.ceil(ttl / 4))


class Session:
    """Made when needed, and again when lost. Belongs to the event loop it was made on."""

    def __init__(
        self, address: PostgresAddress, notes: Notes, patience: Patience, connect_s: float, *, is_pooled: bool
    ) -> None:
        self._address = address
        self._notes = notes
        self._patience = patience
        self._connect_s = connect_s
        self._is_pooled = is_pooled
        self._pipeline: Pipeline | None = None
        self._reconnect = Reconnect(self._made)
        self._beating: asyncio.Task[None] | None = None
        self.on_word: Callable[[str], None] = _nothing
        self.on_end: Callable[[str], None] = _nothing
        self.needed: Callable[[], bool] = _never
        """Whether anything is held: only then heartbeats are sent."""

    @property
    def current(self) -> Pipeline | None:
        """The connection, if there is one now."""
        return self._pipeline

    async def pipeline(self) -> Pipeline:
        """The connection.

        Raises:
            Unavailable, PermissionDenied, Unsupported: there is none.
        """
        return self._pipeline or await self._reconnect.pipeline()

    async def close(self) -> None:
        await self._reconnect.close()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        if self._pipeline is not None:
            pipeline = self._pipeline
            with suppress(FenceholdError, Rejected):
                await pipeline.ask(self._notes.farewell)
            pipeline.end("the client was closed")

    async def _made(self) -> Pipeline:
        pipeline, facts, is_pooled = await open_pipeline(self._address, self._connect_s, self._patience.answer_s)
        try:
            if is_pooled and not self._is_pooled:
                raise Unsupported(f"{self._address}: {_POOLED}")
            await self._begin(pipeline, facts.pid)
        except BaseException:
            pipeline.end("it was not wanted")
            raise
        pipeline.on_notify, pipeline.on_end = self.on_word, self._on_end
        self._pipeline = pipeline
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())
        return pipeline

    async def _begin(self, pipeline: Pipeline, pid: int) -> None:
        values = ", ".join(f"('{name}', '{value}')" for name, value in self._patience.settings.items())
        setting = f"SELECT set_config(name, asked.value, false) FROM (VALUES {values}) AS asked (name, value) "
        await ask_safely(pipeline, self._address, f"{setting} JOIN pg_settings USING (name)".encode())
        await self._make_table(pipeline)
        await ask_safely(pipeline, self._address, self._notes.sweep)
        await ask_safely(pipeline, self._address, f'LISTEN "{self._notes.channel}{pid}"'.encode())

    async def _make_table(self, pipeline: Pipeline) -> None:
        ((there,),) = await ask_safely(pipeline, self._address, self._notes.is_made)
        if there == b"t":
            return
        try:
            await ask_safely(pipeline, self._address, self._notes.making)
        except PermissionDenied as error:
            raise PermissionDenied(
                f"{error}; table {self._notes.name} does not exist, and this user may not create it: have "
                f"an administrator run this, and grant its use:\n{self._notes.script}"
            ) from error

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._patience.ttl / 3)
            if self._pipeline is not None and self.needed():
                # The pipeline ends if there is no reply; nothing else matters.
                self._pipeline.ask(PING)

    def _on_end(self, why: str) -> None:
        self._pipeline = None
        self.on_end(why)


def _nothing(_: str) -> None:
    pass


def _never() -> bool:
    return False
