"""The event loop of a test: its own, new, and asked at the end whether all is in order.

A test that is a coroutine is run here, by the hook in `conftest.py`; a test that needs several loops calls `run`
itself. At the end no task may be left, and the loop must have had nothing to complain of, such as an exception
that nobody fetched.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

_SECONDS_MAX = 240.0
"""Until a test counts as hanging. Many times what any of them needs, also where others use the machine as well."""


def run(work: Coroutine[Any, Any, T], loop_factory: LoopFactory | None = None) -> T:
    """Run a test's coroutine on a loop of its own."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_watched(work))


async def _watched(work: Coroutine[Any, Any, T]) -> T:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with asyncio.timeout(_SECONDS_MAX):
        result = await work
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"
    assert not complaints, f"the event loop complains: {complaints}"
    return result
