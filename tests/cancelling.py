"""Cancelling a coroutine at each of its await points."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class CancelAt:
    """Await a coroutine, and cancel the task at the k-th time it is suspended.

    Early: when it is about to sleep. Late: when what it sleeps for has happened, but it has not been told yet.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], step: int, *, late: bool) -> None:
        self._coroutine = coroutine
        self._step = step
        self._late = late
        self.steps = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        inner = self._coroutine.__await__()
        resume: BaseException | None = None
        while True:
            try:
                slept_for = inner.send(None) if resume is None else inner.throw(resume)
            except StopIteration as end:
                return end.value
            resume = None
            if self.steps == self._step:
                self._cancel(task, slept_for)
            self.steps += 1
            try:
                yield slept_for
            except BaseException as error:
                resume = error

    def _cancel(self, task: "asyncio.Task[Any]", slept_for: Any) -> None:
        if self._late and slept_for is not None:
            # Called before the task's own callback, which is added after this: the result is there, unseen.
            slept_for.add_done_callback(lambda _: task.cancel())
            slept_for._asyncio_future_blocking = True
        else:
            task.cancel()


async def steps_of(coroutine: Coroutine[Any, Any, Any], step: int, late: bool) -> int:
    """Run it in a task that is cancelled at a step; says how many steps there were."""
    stepped = CancelAt(coroutine, step, late=late)

    async def task() -> None:
        await stepped

    await asyncio.gather(asyncio.create_task(task()), return_exceptions=True)
    return stepped.steps
