"""The SDK at a server with a policy: who it is, what it is refused, and how it hears of that."""

import asyncio
from typing import Any

import pytest

import fencehold
from fencehold.errors import PermissionDenied
from fencehold.security.secrets import hashed
from tests.unit.doors.box import Box, serve
from tests.unit.doors.policies import apply, as_somebody, change, rules

HASH = hashed("s3cret")
TABLES: dict[str, Any] = {
    "users": {"sys": {"roles": ["root"]}, "ann": {"roles": ["some"], "secrets": [HASH]}},
    "roles": {"root": rules(all="admin acquire"), "some": rules(own="acquire observe")},
}


def url(box: Box, login: str = "") -> str:
    return f"fencehold://{login}127.0.0.1:{box.server.port}"


def test_a_client_is_who_its_url_says_and_may_what_that_may() -> None:
    """What is not allowed raises PermissionDenied, and the client goes on."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **TABLES)
        async with fencehold.aio.connect(url(box, "ann:s3cret@")) as client:
            with pytest.raises(PermissionDenied, match="'ann' may not acquire 'other'"):
                await client.lock("other").acquire()
            async with client.lock("own"):
                assert box.state.sessions[box.state.held["own"].session].principal == "ann"
            with pytest.raises(PermissionDenied):
                await client.explain("other")

    serve(scenario)


@pytest.mark.parametrize("login", ["", "ann:wrong@", "eve:s3cret@"])
def test_who_is_not_let_in_hears_why(login: str) -> None:
    """To connect as nobody, with a wrong secret or as a stranger raises PermissionDenied, soon."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **TABLES)
        with pytest.raises(PermissionDenied):
            async with fencehold.aio.connect(url(box, login)):
                pass

    serve(scenario)


def test_a_waiter_whose_right_is_taken_away_is_told_at_once() -> None:
    """It does not wait for its timeout; nor for ever."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **TABLES)
        admin = await as_somebody(box, "sys", session=60_000)
        await admin.call("LOCK.ACQUIRE", "own")
        async with fencehold.aio.connect(url(box, "ann:s3cret@")) as client:
            waiting = asyncio.create_task(client.lock("own").acquire())
            await box.waiting(1)
            await apply(admin, users={"ann": {"roles": []}})
            with pytest.raises(PermissionDenied, match="may not acquire 'own'"):
                await waiting
            await apply(admin, users={"ann": {"roles": ["some"]}})
            async with client.lock("own2"):
                pass

    serve(scenario)
