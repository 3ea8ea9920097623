"""What the search for deadlocks looks at: steps are counted, not seconds."""

import pytest

from fencehold.core import deadlock
from fencehold.core.commands import Acquire, Command, Entry, Mode, OpenSession, Release
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Deadlock, Granted, Outcome, Queued

LIMITS = Limits(waiters_per_name_max=20_000, holds_per_session_max=100_000)
ASKER, HOLDER, CROWD = 1, 2, 3


class Talk:
    """A machine, and how many steps the search took in the last command."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.machine = Machine(LIMITS)
        self.steps = 0
        walk = deadlock._Search._walk

        def counted(*args):  # type: ignore[no-untyped-def]
            for step in walk(*args):
                self.steps += 1
                yield step

        patch.setattr(deadlock._Search, "_walk", counted)
        self.tell(*[OpenSession(60_000)] * 3)

    def tell(self, *commands: Command) -> list[Outcome]:
        self.steps = 0
        return self.machine.apply(self.machine.position + 1, Entry(1, commands)).outcomes

    def ask(self, session: int, *names: str, owner: str = "t", mode: Mode = Mode.EXCLUSIVE) -> Outcome:
        (outcome,) = self.tell(Acquire(session, names, owner=owner, mode=mode))
        return outcome

    def crowd(self, count: int, *names: str, mode: Mode = Mode.EXCLUSIVE) -> None:
        """As many owners ask for all these names."""
        self.tell(*(Acquire(CROWD, names, owner=f"{names[0]}-{i}", mode=mode) for i in range(count)))


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Talk:
    return Talk(monkeypatch)


@pytest.mark.parametrize("count", [10, 10_000])
def test_who_holds_nothing_is_queued_without_a_step(talk: Talk, count: int) -> None:
    """However many wait: nobody waits for an owner that holds nothing."""
    talk.ask(HOLDER, "a")
    talk.crowd(count, "a")
    assert talk.ask(ASKER, "a") == Queued(count + 1, count)
    assert talk.steps == 0


@pytest.mark.parametrize("count", [10, 10_000])
def test_what_nobody_waits_for_costs_no_step(talk: Talk, count: int) -> None:
    """An owner that holds ten thousand names is not in anybody's way by that."""
    talk.ask(HOLDER, "a")
    talk.tell(*(Acquire(ASKER, (f"mine-{i}",), owner="t") for i in range(count)))
    talk.crowd(count, "a")
    assert isinstance(talk.ask(ASKER, "a"), Queued)
    assert talk.steps == 0


@pytest.mark.parametrize("count", [20, 10_000])
def test_few_who_wait_for_the_asker_are_few_steps(talk: Talk, count: int) -> None:
    """What it costs follows who waits for the asker, not who stands before it."""
    talk.ask(HOLDER, "a")
    talk.ask(ASKER, "mine")
    talk.tell(*(Acquire(HOLDER, ("mine",), owner=f"o-{i}") for i in range(3)))
    talk.crowd(count, "a")
    assert isinstance(talk.ask(ASKER, "a"), Queued)
    assert talk.steps < 20


@pytest.mark.parametrize("count", [20, 10_000])
def test_who_holds_a_name_that_many_wait_for_may_ask_for_another(talk: Talk, count: int) -> None:
    """What it costs follows who stands before the asker, not who waits for it, if those are fewer."""
    talk.ask(HOLDER, "a")
    talk.ask(ASKER, "mine")
    talk.crowd(count, "mine")
    assert isinstance(talk.ask(ASKER, "a"), Queued)
    assert talk.steps < 10


@pytest.mark.parametrize("count", [20, 1_000])
def test_waiters_with_many_names_are_no_more_steps(talk: Talk, count: int) -> None:
    """A thousand that wait for 64 names each cost one more who asks for them nothing, and their holder little."""
    names = [f"n-{i}" for i in range(64)]
    talk.ask(HOLDER, *names)
    talk.crowd(count, *names)
    assert isinstance(talk.ask(ASKER, *names), Queued)
    assert talk.steps == 0
    talk.ask(ASKER, "other", owner="u")
    assert isinstance(talk.ask(HOLDER, "other"), Queued)
    assert talk.steps < 10


def test_where_both_ways_are_long_each_waiter_is_few_steps(talk: Talk) -> None:
    """Many wait for the asker, many stand before it: each is come to twice, in however many queues it stands."""
    count, names = 200, [f"n-{i}" for i in range(8)]
    for session, some in ((ASKER, names), (HOLDER, [f"other-{name}" for name in names])):
        talk.ask(session, *some)
        talk.crowd(count, *some)
    assert isinstance(talk.ask(ASKER, "other-n-0"), Queued)
    assert 2 * count < talk.steps < 6 * count


@pytest.mark.parametrize("count", [20, 10_000])
def test_a_circle_is_found_in_few_steps_behind_many(talk: Talk, count: int) -> None:
    """That who holds the name waits for the asker is seen without going through the queue of the name."""
    talk.ask(HOLDER, "a")
    talk.ask(ASKER, "mine")
    talk.ask(HOLDER, "mine")
    talk.crowd(count, "a")
    told = talk.ask(ASKER, "a")
    assert isinstance(told, Deadlock)
    assert len(told.circle) == 2
    assert talk.steps < 10


@pytest.mark.parametrize("count", [10, 10_000])
def test_a_writer_is_queued_behind_any_number_of_readers_without_a_step(talk: Talk, count: int) -> None:
    """A writer that holds nothing looks at none of the readers before it."""
    talk.crowd(count, "book", mode=Mode.SHARED)
    assert isinstance(talk.ask(ASKER, "book"), Queued)
    assert talk.steps == 0


def test_a_name_handed_on_is_in_the_way_of_its_queue(talk: Talk) -> None:
    """Who was granted a name after a wait closes circles by it, and who gave it back does not."""
    talk.ask(HOLDER, "a")
    talk.ask(ASKER, "b")
    for owner in ("first", "second"):
        talk.ask(CROWD, "a", owner=owner)
    talk.tell(Release(HOLDER, ("a",), 1))
    assert talk.machine.state.blocking == {(CROWD, "first"): ["a"]}
    talk.ask(CROWD, "b", owner="second")
    assert isinstance(talk.ask(HOLDER, "b"), Queued)


@pytest.mark.parametrize("count", [deadlock.LINKS_MAX, 300])
def test_a_long_circle_is_told_by_its_ends(talk: Talk, count: int) -> None:
    """With so many links at the most, and between them one that says how many are left out."""
    for number in range(count):
        assert isinstance(talk.ask(HOLDER, f"n{number}", owner=f"t{number}"), Granted)
    for number in range(1, count):
        assert isinstance(talk.ask(HOLDER, f"n{(number + 1) % count}", owner=f"t{number}"), Queued)
    outcome = talk.ask(HOLDER, "n1", owner="t0")
    assert isinstance(outcome, Deadlock)
    links = outcome.circle
    assert (links[0].owner, links[0].name, links[-1].owner, links[-1].name) == ("t0", "n1", f"t{count - 1}", "n0")
    left_out = [link for link in links if not link.name]
    if count == deadlock.LINKS_MAX:
        assert (len(links), left_out) == (count, [])
    else:
        assert len(links) == deadlock.LINKS_MAX + 1
        assert [(link.session, link.owner) for link in left_out] == [(0, f"{count - deadlock.LINKS_MAX} more")]
