"""Both event loops: what goes over sockets is tried on each."""

import asyncio
from typing import Any

import pytest
import uvloop


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    return request.param
