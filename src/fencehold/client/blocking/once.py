"""Jobs that run once, for threads. See the async ones for their rules."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fencehold.client.blocking.hold import Claim
from fencehold.client.blocking.lock import Lock
from fencehold.client.clock import clock
from fencehold.client.current import Body
from fencehold.client.jobs import Busy

Given = ParamSpec("Given")
Result = TypeVar("Result")


def once(
    lock: Lock[Claim], at_least: float, busy: Busy
) -> Callable[[Callable[Given, Result]], Callable[Given, Result | None]]:
    """Decorate a function so that one call of it runs at a time, anywhere; None is a skipped one."""

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result | None]:
        @wraps(function)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Result | None:
            # A stranger: once it is over, this thread may wait for a name that is kept, like anybody else.
            owner = lock._stranger() if at_least else None
            hold = lock._acquire_unowned(lock._terms, owner) if busy == "skip" else lock.acquire_or_raise(owner)
            if hold is None:
                return None
            began_at = clock()
            body = Body(hold)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                body.leave()
                hold._leave(error, keep=at_least - (clock() - began_at))
                raise
            body.leave()
            hold._leave(None, keep=at_least - (clock() - began_at))
            return result

        return run

    return decorate
