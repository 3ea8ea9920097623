"""The link of a standby: what it hears from a leader that has a policy."""

import pytest

from fencehold.node.leader_link import _LeaderConnection
from fencehold.node.standby import Parting
from tests.loops import run
from tests.unit.doors.box import Box, serve
from tests.unit.doors.policies import as_somebody, change, rules


@pytest.mark.parametrize("said", [b"-NOAUTH say who you are\r\n", b"-DENIED 'n2' may not administer\r\n"])
def test_a_leader_that_lets_nobody_follow_is_alive(said: bytes) -> None:
    """A standby that is not let in takes its leader neither for gone nor for stopping."""

    async def scenario() -> None:
        heard: list[int] = []
        line = _LeaderConnection(heard.append, b"")
        line.data_received(said * 2)
        assert len(heard) == 2
        assert not line.parted.done()
        line.data_received(b"-NOTLEADER this node stands by\r\n")
        assert line.parted.result() is Parting.GOODBYE

    run(scenario())


def test_a_node_that_does_not_lead_says_so_to_who_follows_it() -> None:
    """Whatever the policy says of the standby: it would wait for a leader that is none."""

    async def scenario(box: Box) -> None:
        nobody = await box.client(3)
        await change(box, nobody, users={"sys": {"roles": ["root"]}}, roles={"root": rules(all="admin")})
        client = await as_somebody(box, "sys")
        assert await nobody.refusal("NODE.FOLLOW", "n", "h:1", 1) == "NOAUTH"
        assert isinstance(await client.call("NODE.FOLLOW", "n", "h:1", 1), int)
        node = box.server.node
        leader, node.leading = node.leading, None
        assert await nobody.refusal("NODE.FOLLOW", "n", "h:1", 1) == "UNAVAILABLE"
        node.leading = leader

    serve(scenario)


def test_a_standby_is_told_to_hurry() -> None:
    """The leader's word that journals are to be followed closely ends nothing, and comes to whom it is for."""

    async def scenario() -> None:
        heard: list[int] = []
        told: list[str] = []
        line = _LeaderConnection(heard.append, b"", lambda: told.append("hurry"))
        line.data_received(b">1\r\n$5\r\nhurry\r\n:1\r\n>1\r\n$5\r\nother\r\n")
        assert (told, heard) == (["hurry"], [1])
        assert not line.parted.done()

    run(scenario())
