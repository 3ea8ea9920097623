"""Jobs that run once, however many processes try to run them.

1. `at_most` caps a run: its hold ends then, even if its process would keep it alive.
2. `at_least` keeps the name after a quick run, so that a process whose clock is behind does not run it again. It
   is part of the request, and kept where the name was granted: the process may end, or be killed, meanwhile.
"""

from collections.abc import Awaitable, Callable
from functools import wraps

from fencehold.client.aio.decorator import Given, Job, Result, SkippingDecorator
from fencehold.client.aio.hold import Claim
from fencehold.client.aio.lock import Lock
from fencehold.client.aio.routes import current_task

# BLOCKING: from fencehold.client.decoration import ran
from fencehold.client.options import Busy
from fencehold.locks.hold import Body


class Once(SkippingDecorator):
    """Decorates a job so that one call of it runs at a time, anywhere; None is a skipped one."""

    __slots__ = ("_busy", "_lock")

    def __init__(self, lock: Lock[Claim], busy: Busy) -> None:
        self._lock = lock
        self._busy = busy

    def _wrapped(self, function: Callable[Given, Awaitable[Result]]) -> Job[Given, Result | None]:
        @wraps(function)
        async def run(*args: Given.args, **kwargs: Given.kwargs) -> Result | None:
            hold = await self._acquire()
            if hold is None:
                return None
            body: Body[Claim] | None = None
            failure: BaseException | None = None
            try:
                hold._enter_body(current_task())  # ASYNC
                body = Body(hold)
                body.enter()
                return await function(*args, **kwargs)  # ASYNC
                # BLOCKING: return ran(function, function(*args, **kwargs))
            except BaseException as error:
                failure = error
                raise
            finally:
                try:
                    if body is not None:
                        body.leave()
                    await hold._leave(failure)
                finally:
                    # After an interrupt, too, which may have prevented any of it.
                    if body is not None:
                        body.leave()
                    hold._on_interrupted()

        return run

    async def _acquire(self) -> Claim | None:
        lock = self._lock
        return await (lock._acquire_unowned() if self._busy == "skip" else lock.acquire_or_raise())
