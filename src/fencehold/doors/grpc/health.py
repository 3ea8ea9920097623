"""Health, as a load balancer sees it.

The listener itself (the empty service) serves as long as it runs. The services of locks serve where a node that
the URL of the listener names leads: a listener beside a standby works, too, as it forwards to the leader; but a
client that can choose should take the short way.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fencehold.doors.grpc import etcd_election, etcd_service
from fencehold.doors.grpc.calls import Call
from fencehold.doors.grpc.statuses import Unknown
from fencehold.gateway.questions import Questions
from fencehold.wire import grpc_messages as g
from fencehold.wire.services import LOCK, SESSION, WATCH

HEALTH = "grpc.health.v1.Health"
LOOK_S = 1.0
_SERVING = g.HealthCheckResponse.SERVING
_NOT_SERVING = g.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = g.HealthCheckResponse.SERVICE_UNKNOWN
_OWN = ("", HEALTH)
_OF_THE_LEADER = (LOCK, SESSION, WATCH, etcd_service.LOCK, etcd_service.LEASE, etcd_election.ELECTION)


class Health:
    """Polls the nodes, and reports. Called by gRPC as `grpc.health.v1.Health`."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._statuses: dict[str, int] = dict.fromkeys(_OF_THE_LEADER, _NOT_SERVING)
        self._statuses |= dict.fromkeys(_OWN, _SERVING)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._tell(await self._is_leading())
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Nothing is served from now on: watchers are notified."""
        if self._task is not None:
            self._task.cancel()
        self._set(dict.fromkeys(self._statuses, _NOT_SERVING))

    async def check(self, request: Any, _call: Call) -> Any:
        status = self._statuses.get(request.service)
        if status is None:
            raise Unknown(f"there is no service {request.service[:200]!r} here")
        return g.HealthCheckResponse(status=status)

    async def list(self, _request: Any, _call: Call) -> Any:
        told = {name: g.HealthCheckResponse(status=status) for name, status in self._statuses.items()}
        return g.HealthListResponse(statuses=told)

    async def watch(self, request: Any, _call: Call) -> AsyncIterator[Any]:
        told = None
        while True:
            changed, status = self._changed, self._statuses.get(request.service, _SERVICE_UNKNOWN)
            if status != told:
                told = status
                yield g.HealthCheckResponse(status=status)
            await changed.wait()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._tell(await self._is_leading())

    async def _is_leading(self) -> bool:
        return "leader" in (await self._questions.roles()).values()

    def _tell(self, is_serving: bool) -> None:
        self._set(dict.fromkeys(_OF_THE_LEADER, _SERVING if is_serving else _NOT_SERVING))

    def _set(self, statuses: dict[str, int]) -> None:
        if self._statuses | statuses != self._statuses:
            self._statuses |= statuses
            # Waiters have this event; the next change has another.
            self._changed.set()
            self._changed = asyncio.Event()
