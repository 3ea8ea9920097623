"""Both event loops: what goes over sockets is tried on each."""

import asyncio
from typing import Any

import pytest
import uvloop


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Any:
    return request.param
