"""Health: what a load balancer is told.

The listener itself (the empty service) serves as long as it runs. The services of locks serve where a node that
the URL of the listener names leads: a listener beside a standby works, too, as it goes to the leader; but those
who can choose had better take the short way.
"""

import asyncio
from typing import Any

from grpc_health.v1 import health, health_pb2

from fencehold.gateway.questions import Questions
from fencehold.wire.services import LOCK, SESSION, WATCH

LOOK_S = 1.0
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """Looks at the nodes now and then, and tells."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self.servicer: Any = health.aio.HealthServicer()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.servicer.set("", _SERVING)
        await self._tell(await self._is_leading())
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await self.servicer.enter_graceful_shutdown()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._tell(await self._is_leading())

    async def _is_leading(self) -> bool:
        return "leader" in (await self._questions.roles()).values()

    async def _tell(self, is_serving: bool) -> None:
        for service in (LOCK, SESSION, WATCH):
            await self.servicer.set(service, _SERVING if is_serving else _NOT_SERVING)
