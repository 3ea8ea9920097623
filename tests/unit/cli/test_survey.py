"""Surveys: who is found from where, and what is said of those that cannot be asked."""

import asyncio

import pytest

from fencehold.cli.survey import Answer, Survey, drawn_up, survey
from fencehold.drivers.address import Endpoint
from fencehold.engines.memory import MemoryJournal
from fencehold.errors import Unsupported
from fencehold.node.leader import Bounds
from fencehold.server import Config, Server
from rig.processes import free_port
from tests.unit.node.doubles import until
from tests.unit.node.test_cluster import QUICK, Cluster, cluster


async def surveyed(*places: str | Server) -> Survey:
    hosts = [place if isinstance(place, str) else f"127.0.0.1:{place.port}" for place in places]
    return await asyncio.to_thread(survey, f"fencehold://{','.join(hosts)}")


def roles(seen: Survey) -> list[tuple[str, str]]:
    return [(node.node, node.role) for node in seen.nodes]


ALL = [("a", "leader"), ("b", "standby"), ("c", "standby")]


async def test_one_address_is_enough_to_find_all() -> None:
    """A standby names the leader, and that names the others; the leader comes first."""
    async with cluster("a", "b", "c") as (_, (a, b, _c)):
        for place in (a, b, f"localhost:{b.port}"):
            seen = await surveyed(place)
            assert roles(seen) == ALL
        leader, *standbys = seen.nodes
        assert seen.leader == leader
        assert (leader.address, leader.epoch, leader.engine) == (f"127.0.0.1:{a.port}", 1, "memory")
        assert all(standby.lag is not None and standby.is_at_home for standby in standbys)
        assert [node.note for node in seen.nodes] == ["", "", ""]


async def test_a_node_that_is_away_is_shown_as_such() -> None:
    """By the URL's word for it, beside those that answer; by no means does it hide them."""
    async with cluster("a", "b") as (_, (_a, b)):
        nowhere = f"127.0.0.1:{free_port()}"
        seen = await surveyed(nowhere, b)
        assert roles(seen) == [*ALL[:2], ("", "unreachable")]
        assert seen.nodes[2].address == nowhere
        assert "refused" in seen.nodes[2].note


def test_nobody_at_all_is_a_survey_too() -> None:
    """Without a leader, and without an answer."""
    seen = survey(f"fencehold://127.0.0.1:{free_port()}")
    assert (seen.leader, seen.answers) == (None, False)


async def test_a_server_alone_is_found_where_it_was_asked() -> None:
    """It has no name, and leads."""
    async with Server(Config(port=0)) as server:
        seen = await surveyed(server)
        assert roles(seen) == [("", "leader")]
        assert seen.nodes[0].address == f"127.0.0.1:{server.port}"


async def test_a_wrong_address_is_noticed() -> None:
    """A node that answers somewhere else than it advertises says so in its note, and is one node."""
    async with cluster("a") as (nodes, (a,)):
        b = await joined(nodes, "b", advertise=f"127.0.0.1:{free_port()}")
        await until(lambda: b.node.role == "standby" and a.node.standbys.all())
        seen = await surveyed(a, b)
        assert roles(seen) == ALL[:2]
        assert not seen.nodes[1].is_at_home
        assert f"it answers at 127.0.0.1:{b.port}, but not at the address it advertises" in seen.nodes[1].note
        # Whoever cannot ask it where it is hears of it from the leader.
        away = (await surveyed(a)).nodes[1]
        assert (away.node, away.role) == ("b", "unreachable")
        assert "the leader heard it" in away.note


async def test_an_address_that_another_node_has_is_noticed() -> None:
    """Clients that are sent there come to the wrong one."""
    async with cluster("a", "b") as (nodes, (a, b)):
        c = await joined(nodes, "c", advertise=f"127.0.0.1:{b.port}")
        await until(lambda: c.node.role == "standby")
        seen = await surveyed(a, b, c)
        assert roles(seen) == ALL
        assert "another node does" in seen.nodes[2].note


async def joined(nodes: Cluster, name: str, advertise: str) -> Server:
    config = Config(node=name, port=0, advertise=advertise, patience=QUICK, leader=Bounds(tick_s=0.02))
    server = nodes.servers[name] = Server(config, journal=MemoryJournal(nodes.store))
    await server.start()
    return server


def said(node: str, role: str, epoch: int, leader: int, position: int = 10, note: str = "") -> Answer:
    return Answer(
        {
            "node": node,
            "address": f"h:{ord(node)}",
            "role": role,
            "engine": "etcd",
            "epoch": epoch,
            "position": position,
            "leader": chr(leader),
            "leader_address": f"h:{leader}",
            "note": note,
            "version": "1",
            "standbys": [],
        }
    )


A, B, C = 97, 98, 99


def test_of_two_that_say_they_lead_the_newer_epoch_does() -> None:
    """The other was replaced, and has not noticed."""
    answers = {Endpoint("h", A): said("a", "leader", 3, A), Endpoint("h", B): said("b", "leader", 4, B)}
    seen = drawn_up(answers)
    assert roles(seen) == [("b", "leader"), ("a", "waiting")]
    assert "older epoch" in seen.nodes[1].note


def test_a_leader_that_is_gone_keeps_its_name() -> None:
    """Its standbys still know it."""
    answers = {Endpoint("h", B): said("b", "standby", 0, A), Endpoint("h", A): Answer({}, "refused")}
    assert roles(drawn_up(answers)) == [("a", "unreachable"), ("b", "standby")]


def test_a_standby_that_the_leader_does_not_hear_is_noted() -> None:
    """It follows the journal, but its line to the leader is broken."""
    answers = {Endpoint("h", A): said("a", "leader", 1, A), Endpoint("h", B): said("b", "standby", 0, A, 8)}
    standby = drawn_up(answers).nodes[1]
    assert standby.note == "the leader does not hear from it"
    assert standby.lag == 2


def test_why_a_node_waits_is_its_note() -> None:
    """And no lag is made up for it."""
    seen = drawn_up({Endpoint("h", C): said("c", "waiting", 0, A, note="trying again: away")})
    assert (seen.leader, seen.nodes[0].note, seen.nodes[0].lag) == (None, "trying again: away", None)


def test_tls_is_not_spoken_yet() -> None:
    """It is refused, not tried in the clear."""
    with pytest.raises(Unsupported):
        survey("fenceholds://127.0.0.1")
