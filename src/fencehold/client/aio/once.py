"""Jobs that run once, however many processes are told to run them.

1. `at_most` caps a run: the hold ends then, and the job is cancelled, even if its process would keep it alive.
2. `at_least` keeps the name after a quick run, so that a process whose clock is behind does not run it again. It
   is part of what is asked for, and kept where the name was granted: the process may end, or be killed, meanwhile.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fencehold.client.aio.hold import Claim
from fencehold.client.aio.lock import Job, Lock
from fencehold.client.decoration import check_async
from fencehold.client.jobs import Busy
from fencehold.locks.carrier import current_task
from fencehold.locks.hold import Body

Given = ParamSpec("Given")
Result = TypeVar("Result")


def once(
    lock: Lock[Claim], busy: Busy
) -> Callable[[Callable[Given, Awaitable[Result]]], Job[Given, Result | None]]:
    """Decorate a coroutine function so that one call of it runs at a time, anywhere; None is a skipped one."""

    def decorate(
        function: Callable[Given, Awaitable[Result]],
    ) -> Job[Given, Result | None]:
        check_async(function)

        @wraps(function)
        async def run(*args: Given.args, **kwargs: Given.kwargs) -> Result | None:
            hold = await (lock._acquire_unowned() if busy == "skip" else lock.acquire_or_raise())
            if hold is None:
                return None
            hold._enter_body(current_task())
            body = Body(hold).enter()
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                body.leave()
                await hold._leave(error)
                raise
            body.leave()
            await hold._leave(None)
            return result

        return run

    return decorate
