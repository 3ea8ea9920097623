"""The event loop of one simulated process: asyncio's, as far as the node and the SDK use it, on virtual time."""

import asyncio
from asyncio import Handle, TimerHandle
from collections.abc import Callable, Coroutine
from contextvars import Context
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.process import Process

Factory = Callable[[], asyncio.Protocol]


class SimulatedLoop(asyncio.AbstractEventLoop):
    """What `asyncio.get_running_loop` gives inside a simulated process."""

    network: "Network"
    """Set by whoever connects the process to one."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._numbers = count(1)

    def time(self) -> float:
        return self._process.seconds()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    # What is to be called.

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, self, context)
        process = self._process
        process.ready.append(handle)
        if process.scheduler.running is not process:
            process.wake()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self._process.seconds() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        handle = TimerHandle(when, callback, args, self, context)
        process = self._process
        at_ns = max(process.drift.ns(when), process.scheduler.now_ns)
        process.scheduler.ring_at(at_ns, process, handle)
        return handle

    def ring(self, handle: TimerHandle) -> None:
        """A timer is due."""
        if not handle._cancelled:
            handle._run()

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """It is passed over when its time comes."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[Any]":
        # Numbered here: asyncio counts over the whole interpreter, and owners carry the names of tasks.
        return asyncio.Task(coro, loop=self, name=name or f"task-{next(self._numbers)}", context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._process.complain(f"{context.get('message')}: {context.get('exception')!r}")

    # The network.

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Factory, host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        attempt = self.network.connect(self._process, protocol_factory, host, port)
        try:
            return await attempt.made  # type: ignore[no-any-return]
        except BaseException:
            attempt.give_up()
            raise

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Factory, host: str, port: int, **_: Any
    ) -> "asyncio.Server":
        return self.network.listen(self._process, protocol_factory, port)  # type: ignore[return-value]
