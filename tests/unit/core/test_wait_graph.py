"""Circles of owners through several shards: what is one, what is none, and whose request is refused."""

from typing import Any

import pytest

from fencehold.core import wait_graph
from fencehold.core.commands import Acquire, Command, Entry, Mode, OpenSession, OpenSessionAs, Release
from fencehold.core.deadlock import LINKS_MAX
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Granted, Outcome
from fencehold.core.wait_graph import Circle, Reading, WaitGraph, client_of, is_confirmed, refusal_of, victim_of

LIMITS = Limits(waiters_per_name_max=20_000, holds_per_session_max=100_000)


class Service:
    """Machines, one for each shard, with a session of each client in each."""

    def __init__(self, shards: int, *clients: str) -> None:
        self.machines = [Machine(LIMITS) for _ in range(shards)]
        self.sessions = {client: number for number, client in enumerate(clients, 1)}
        for shard in range(shards):
            self.tell(shard, *(OpenSession(60_000, meta=f'{{"session_of":"{client}"}}') for client in clients))

    def tell(self, shard: int, *commands: Command) -> list[Outcome]:
        machine = self.machines[shard]
        return machine.apply(machine.position + 1, Entry(100, commands)).outcomes

    def ask(self, client: str, shard: int, *names: str, owner: str = "t", **more: Any) -> Outcome:
        (outcome,) = self.tell(shard, Acquire(self.sessions[client], names, owner=owner, **more))
        return outcome

    def readings(self) -> dict[int, Reading]:
        return {shard: wait_graph.read(machine.state, shard) for shard, machine in enumerate(self.machines)}

    def graph(self) -> WaitGraph:
        return WaitGraph(self.readings().values())

    def circles(self) -> list[Circle]:
        return list(self.graph().circles())


def crossing() -> Service:
    """A has a in shard 0 and waits for b in shard 1; B the other way round."""
    service = Service(2, "A", "B")
    service.ask("A", 0, "a")
    service.ask("B", 1, "b")
    service.ask("A", 1, "b")
    service.ask("B", 0, "a")
    return service


def said(circle: Circle) -> list[tuple[str, str]]:
    """Which client waits for which name, from the one that is refused."""
    links = list(circle)
    while links[0].wait != victim_of(circle):
        links.append(links.pop(0))
    return [(link.wait.party[1] if link.wait.party else "", link.name) for link in links]


def test_two_that_wait_for_one_another_in_two_shards_are_a_circle() -> None:
    """It is found, and who asked against the order of the shards is refused, though it came first."""
    service = crossing()
    (circle,) = service.circles()
    assert said(circle) == [("B", "a"), ("A", "b")]
    other = Service(2, "A", "B")
    other.ask("A", 0, "a")
    other.ask("B", 1, "b")
    other.ask("B", 0, "a")
    other.ask("A", 1, "b")
    (circle,) = other.circles()
    assert said(circle) == [("B", "a"), ("A", "b")]


def test_a_refusal_ends_the_circle_once() -> None:
    """It names the whole circle, by the clock of the shard it is told in; told again it changes nothing."""
    service = crossing()
    service.machines[1].apply(service.machines[1].position + 1, Entry(900, ()))
    (circle,) = service.circles()
    command = refusal_of(circle, service.readings())
    assert [(link.shard, link.name, link.fence) for link in command.answer.circle] == [(0, "a", 1), (1, "b", 1)]
    now_at = service.machines[0].now_at
    assert [now_at - link.since_at for link in command.answer.circle] == [100, now_at]
    (first,) = service.tell(0, command)
    (again,) = service.tell(0, command)
    assert (first.waited, again.waited) == (True, False)  # type: ignore[union-attr]
    assert not service.circles()


def test_owners_of_one_shard_are_links_of_it() -> None:
    """A client that is in one shard alone stands in a circle between those that are in several."""
    service = Service(2, "A", "B", "C")
    service.tell(1, OpenSession(60_000))
    service.sessions["local"] = 4
    service.ask("A", 0, "a")
    service.ask("B", 1, "b")
    service.ask("local", 1, "x")
    service.ask("A", 1, "x")
    service.ask("local", 1, "b")
    service.ask("B", 0, "a")
    (circle,) = service.circles()
    assert said(circle) == [("B", "a"), ("A", "x"), ("\x001/4", "b")]


def test_who_stands_before_another_in_a_queue_is_waited_for() -> None:
    """Nobody is granted past a waiter, so B waits for A, too; and is told of the shortest circle that it is in."""
    service = Service(2, "A", "B", "C")
    service.ask("C", 0, "a")
    service.ask("B", 1, "b")
    service.ask("A", 0, "a")
    service.ask("B", 0, "a")
    assert not service.circles()
    service.ask("C", 1, "b")
    (circle,) = service.circles()
    assert said(circle) == [("B", "a"), ("C", "b")]
    # A waits for C alone, and is in no circle when that is over.
    service.tell(0, refusal_of(circle, service.readings()))
    assert not service.circles()


def test_who_waits_for_two_things_is_not_one_task() -> None:
    service = crossing()
    service.ask("B", 1, "z")
    service.ask("A", 1, "z")
    assert not service.circles()


@pytest.mark.parametrize("owners", [("t", "u"), ("", "")])
def test_other_owners_of_a_client_are_strangers(owners: tuple[str, str]) -> None:
    """A client's tasks are not one another, and nobody's owner is nobody."""
    service = Service(2, "A", "B")
    service.ask("A", 0, "a", owner=owners[0])
    service.ask("B", 1, "b")
    service.ask("A", 1, "b", owner=owners[1])
    service.ask("B", 0, "a")
    assert not service.circles()


def test_a_client_of_another_principal_is_another() -> None:
    """A session that says it is of A's client is not believed, unless it has the same principal."""
    service = Service(2)
    for shard in range(2):
        for principal in ("ann", "ben") if shard else ("ann", "eve"):
            service.tell(shard, OpenSessionAs(60_000, meta='{"session_of":"A"}', principal=principal))
    service.sessions = {"first": 1, "second": 2}
    service.ask("first", 0, "a")
    service.ask("second", 1, "b")
    service.ask("first", 1, "b")
    service.ask("second", 0, "a")
    assert not service.circles()


def test_readers_wait_for_no_reader_and_writers_for_all() -> None:
    service = Service(2, "A", "B", "C")
    for client in ("A", "C"):
        service.ask(client, 0, "a", mode=Mode.SHARED)
    service.ask("B", 1, "b")
    service.ask("A", 1, "b")
    assert isinstance(service.ask("B", 0, "c", mode=Mode.SHARED), Granted)
    assert not service.circles()
    service.ask("B", 0, "a")
    (circle,) = service.circles()
    assert said(circle) == [("B", "a"), ("A", "b")]


@pytest.mark.parametrize(("limit", "found"), [(1, 1), (2, 0)])
def test_permits_count_only_if_there_is_one(limit: int, found: int) -> None:
    service = Service(2, "A", "B", "C")
    permit: dict[str, Any] = {"mode": Mode.PERMIT, "limit": limit}
    service.ask("A", 0, "a", **permit)
    service.ask("C", 0, "a", **permit, wait_ms=0)
    service.ask("B", 1, "b")
    service.ask("A", 1, "b")
    service.ask("B", 0, "a", **permit)
    assert len(service.circles()) == found


def test_a_circle_is_confirmed_only_while_every_link_is_there() -> None:
    """A hold that was released and granted again is another hold; a wait that began again is another wait."""
    service = crossing()
    (circle,) = service.circles()
    assert is_confirmed(circle, service.graph())
    assert not is_confirmed(circle, WaitGraph([service.readings()[0]]))
    service.tell(1, Release(2, ("b",), 1))
    assert not is_confirmed(circle, service.graph())


def test_circles_that_have_a_request_in_common_cost_one_refusal() -> None:
    """Two readers wait for a writer elsewhere, which waits for both: to refuse the writer is enough."""
    service = Service(2, "A", "B", "C")
    for client in ("A", "B"):
        service.ask(client, 1, "b", mode=Mode.SHARED)
    service.ask("C", 0, "a")
    service.ask("C", 1, "b")
    for client in ("A", "B"):
        service.ask(client, 0, "a", mode=Mode.SHARED)
    circles = service.circles()
    # Both readers ask against the order: each is a circle with the writer.
    assert [said(circle)[0] for circle in circles] == [("A", "a"), ("B", "a")]
    service.tell(0, refusal_of(circles[0], service.readings()))
    service.tell(0, refusal_of(circles[1], service.readings()))
    assert not service.circles()


def test_of_a_long_circle_the_middle_is_left_out() -> None:
    clients = [f"c{number}" for number in range(3 * LINKS_MAX)]
    service = Service(2, *clients)
    for number, client in enumerate(clients):
        service.ask(client, number % 2, f"n{number}")
    for number, client in enumerate(clients):
        following = (number + 1) % len(clients)
        service.ask(client, following % 2, f"n{following}")
    (circle,) = service.circles()
    assert len(circle) == len(clients)
    links = refusal_of(circle, service.readings()).answer.circle
    assert len(links) == LINKS_MAX + 1
    assert [link.owner for link in links if not link.session] == [f"{2 * LINKS_MAX} more"]


def test_crowds_behind_a_name_are_no_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait, no more are read than so many, and no search is begun where nobody waits in a circle."""
    service = Service(2, "A", "B")
    service.ask("A", 0, "a")
    service.ask("B", 1, "b")
    for shard, name in ((0, "a"), (1, "b")):
        service.tell(shard, *(Acquire(2 - shard, (name,), owner=f"w{number}") for number in range(5_000)))
    readings = service.readings()
    assert [len(reading.waits) for reading in readings.values()] == [wait_graph.WAITS_MAX] * 2
    monkeypatch.setattr(WaitGraph, "_shortest", None)
    assert not service.circles()


def test_waits_of_some_are_shown_however_many_wait_before_them() -> None:
    """What confirms a circle must not overlook that somebody in it waits for something else, too."""
    service = Service(2, "A", "B")
    for owner in ("t", "u", "v"):
        service.ask("A", 0, "a", owner=owner)
    service.ask("B", 0, "a")
    state, last = service.machines[0].state, ("", "B", "t")
    shown = [wait.party for wait in wait_graph.read(state, 0, 1, {last}).waits.values()]
    assert shown == [("", "A", "u"), last]


@pytest.mark.parametrize("meta", ["", "plain words", '{"session_of":5}', '"session_of"', '{"session_of":'])
def test_what_is_said_otherwise_says_nothing(meta: str) -> None:
    assert not client_of(meta)
