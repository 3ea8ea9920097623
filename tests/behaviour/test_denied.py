"""Who is not let in is told so, on every backend that has users: that is no outage, and nobody goes on unlocked.

ZooKeeper takes whatever login it is shown, and asks later what may be done with it: see `test_zookeeper_faults`.
"""

from functools import partial

import pytest

import fencehold
from fencehold import EFFICIENCY, PermissionDenied
from tests.behaviour.asking import proceeding
from tests.behaviour.ground import Ground
from tests.behaviour.logins import login_on, wrong_url
from tests.unit.client.service import until

TIMES = 5
"""More often than a breaker needs to open."""


@pytest.mark.on("redis", "redlock", "etcd", "postgres", "advisory", "mysql")
async def test_a_wrong_password_is_no_outage(ground: Ground, name: str) -> None:
    """Who is to proceed when a backend is away does not, however often it asks; the password is in no message."""
    url = wrong_url(ground)

    async with proceeding(url) as client:
        for _ in range(TIMES):
            with pytest.raises(PermissionDenied) as refused:
                await client.lock(name, tier=EFFICIENCY, timeout=0).acquire()
            assert "wrong@" not in str(refused.value)
    with pytest.raises(PermissionDenied):
        fencehold.connect(url, connect_timeout=10)


@pytest.mark.on("redis", "redlock", "postgres", "advisory", "mysql")
async def test_a_login_that_is_taken_away_is_no_outage(ground: Ground, name: str) -> None:
    """While a client is connected, too: nobody proceeds, no breaker opens; and when it is back, so are locks."""
    login = login_on(ground)

    async with proceeding(login.url) as client:
        lock = client.lock(name, tier=EFFICIENCY, timeout=0)

        async def seen() -> str:
            try:
                async with lock as claim:
                    return "held" if claim.is_protected else "not protected"
            except PermissionDenied:
                return "denied"

        async def is_seen(expected: str) -> bool:
            return await seen() == expected

        assert await seen() == "held"
        login.revoke()
        # What is under way when the connection is cut may go on without a lock, as ever.
        await until(partial(is_seen, "denied"))
        assert [await seen() for _ in range(TIMES)] == ["denied"] * TIMES
        login.restore()
        await until(partial(is_seen, "held"))
