"""The broadcast: who watches is told what it watches, in order, each event once, and costs what it watches."""

import random
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencehold.core import events
from fencehold.core.commands import Acquire, CloseSession, OpenSession, Release
from fencehold.core.events import Event
from fencehold.doors.resp import broadcast, event_batches, replies
from fencehold.doors.resp.event_batches import BEFORE_ALL, Member
from fencehold.doors.resp.watch_commands import shortest
from fencehold.node.ring import Ring
from tests.unit.doors.broadcasts import NAMES, Reader, Stage, is_wanted, pushed, some_commands

PREFIXES = ("", "a", "ab", "abc", "abcd", "b", "job:", "job:1", "é", "z")


class Seen:
    """One who watches in a test, and what it may and must have been told."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.stage = stage
        self.prefixes = _some(chance)
        self.since = chance.choice((stage.position, chance.randrange(stage.position + 1), stage.position + 1))
        self.reader, self.member = stage.watcher(*self.prefixes, position=self.since)
        self.watched: list[tuple[int, list[tuple[str, ...]]]] = [(1 << 62, [self.prefixes])]
        """What it watched while things up to a position were told to it."""

    def change(self, chance: random.Random, settled: bool) -> None:
        self.prefixes = _some(chance)
        self.stage.broadcast.watch(self.member, self.prefixes)
        if settled and not self.reader.is_full:
            _, sets = self.watched.pop()
            self.watched += [(self.stage.position, sets), (1 << 62, [self.prefixes])]
        else:
            # Nobody says how far it was told when it changed its mind.
            self.watched[-1][1].append(self.prefixes)

    def must(self) -> list[bytes]:
        """What it wanted all the time."""
        return self._told(all)

    def may(self) -> list[bytes]:
        return self._told(any)

    def _told(self, quantifier: Callable[[Iterable[bool]], bool]) -> list[bytes]:
        later = (event for event in self.stage.history if event.position > self.since)
        return [replies.push_event(event) for event in later if quantifier(self._wanted(event))]

    def _wanted(self, event: Event) -> Iterator[bool]:
        sets = next(sets for upto, sets in self.watched if event.position <= upto)
        return (is_wanted(event, prefixes) for prefixes in sets)


def _some(chance: random.Random) -> tuple[str, ...]:
    return shortest(dict.fromkeys(chance.sample(PREFIXES, chance.choice((0, 1, 1, 1, 2, 3, 5)))))


def _without_gaps(reader: Reader) -> list[bytes]:
    return [event for event in reader.events if b"$4\r\nkind\r\n$3\r\ngap\r\n" not in event]


def _position(event: bytes) -> int:
    return int(event.split(b"$8\r\nposition\r\n:", 1)[1].split(b"\r\n", 1)[0])


def _is_part(part: Iterable[bytes], whole: Iterable[bytes]) -> bool:
    """Whether all of a part is in the whole, in its order."""
    rest = iter(whole)
    return all(any(one == other for other in rest) for one in part)


def _play(stage: Stage, chance: random.Random, steps: int) -> list[Seen]:
    """Let things happen, and watchers come, go, change their minds, stop reading and read again."""
    seen: list[Seen] = []
    gone: list[Seen] = []
    for _ in range(steps):
        what = chance.choice(("happen",) * 6 + ("go", "go", "come", "change", "full", "leave"))
        one = chance.choice(seen) if seen else None
        if what == "happen":
            stage.happen(*some_commands(chance, stage), elapsed_ms=chance.choice((0, 0, 100, 600)))
        elif what == "go":
            stage.go()
        elif what == "come" and len(seen) < 12:
            seen.append(Seen(stage, chance))
        elif what == "change" and one is not None:
            settled = chance.random() < 0.5
            if settled:
                stage.settle()
            one.change(chance, settled)
        elif what == "full" and one is not None:
            one.reader.is_full = not one.reader.is_full
            if not one.reader.is_full:
                stage.broadcast.go_on(one.member)
        elif what == "leave" and one is not None and chance.random() < 0.3:
            seen.remove(one)
            gone.append(one)
            stage.broadcast.leave(one.member)
    for one in seen:
        one.reader.is_full = False
        stage.broadcast.go_on(one.member)
    stage.settle()
    for one in gone:
        assert _is_part(_without_gaps(one.reader), one.may())
    return seen


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all be told in small pieces, so that short histories have many."""
    monkeypatch.setattr(event_batches, "WAVE_BYTES", 700)
    monkeypatch.setattr(broadcast, "WAVE_BYTES", 700)
    monkeypatch.setattr(broadcast, "_READ_STEPS", 3)
    monkeypatch.setattr(events, "_NAMES_PER_STEP", 4)


@pytest.mark.usefixtures("small")
@settings(deadline=None)
@given(seed=st.integers(0, 1 << 32), call_ms=st.sampled_from((0.0, 0.06, 0.26)))
def test_everybody_is_told_exactly_what_each_would_have_found_by_itself(seed: int, call_ms: float) -> None:
    """Whatever happens and whoever watches what since when: all of it comes, in order, once, and nothing else."""
    stage = Stage(call_ms=call_ms)
    for one in _play(stage, random.Random(seed), 120):
        must, told, may = one.must(), one.reader.events, one.may()
        assert _is_part(must, told)
        assert _is_part(told, may)
        assert told == must or must != may
    assert stage.broadcast.shelf.size_bytes == 0


@pytest.mark.usefixtures("small")
@settings(deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    things_max=st.sampled_from((3, 20)),
    kept_bytes_max=st.sampled_from((1_000, 5_000)),
)
def test_what_is_missing_is_said_to_be(seed: int, things_max: int, kept_bytes_max: int) -> None:
    """With little room, what comes is in order and once; for all that does not come there was a gap."""
    stage = Stage(Ring(things_max=things_max), kept_bytes_max, call_ms=0.06)
    for one in _play(stage, random.Random(seed), 120):
        told = _without_gaps(one.reader)
        assert _is_part(told, one.may())
        lost_up_to = max((_position(gap) for gap in one.reader.events if gap not in told), default=0)
        later = [event for event in one.must() if _position(event) > lost_up_to]
        assert _is_part(later, told)
        assert stage.broadcast.shelf.size_bytes <= kept_bytes_max
    assert stage.broadcast.shelf.size_bytes == 0


class Counted:
    """How often events are made and encoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = self.encoded = 0
        make, encode = events._event, replies.push_event

        def made(*arguments: object) -> Event:
            self.made += 1
            return make(*arguments)  # type: ignore[arg-type]

        def encoded(event: Event, shard: int) -> bytes:
            self.encoded += 1
            return encode(event, shard)

        monkeypatch.setattr(events, "_event", made)
        monkeypatch.setattr(replies, "push_event", encoded)


def _busy(stage: Stage, rounds: int) -> None:
    for number in range(rounds):
        acquire = Acquire(1, (f"bench:{number}",), owner="t")
        stage.happen(acquire, Release(1, (f"bench:{number - 1}",), stage.machine.fence))


def test_an_event_is_made_once_and_encoded_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred who watch everything cost one derivation and one encoding of each event, and hear all of it."""
    stage = Stage()
    stage.happen(OpenSession(60_000))
    readers = [stage.watcher("")[0] for _ in range(200)]
    before = len(stage.history)
    _busy(stage, 50)
    happened = stage.history[before:]
    expected = pushed(happened, "")
    counted = Counted(monkeypatch)
    stage.settle()
    assert (counted.made, counted.encoded) == (len(happened), len(happened))
    assert all(reader.events == expected for reader in readers)


def test_what_nobody_watches_is_not_made_an_event_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand who watch other names cost no derivation, no encoding and no write."""
    stage = Stage()
    stage.happen(OpenSession(60_000))
    readers = [stage.watcher(f"watched:{number}:")[0] for number in range(1_000)]
    _busy(stage, 50)
    counted = Counted(monkeypatch)
    stage.settle()
    assert (counted.made, counted.encoded) == (0, 0)
    assert not any(reader.told for reader in readers)


def test_what_is_told_to_many_is_joined_once() -> None:
    """All who watch the same prefixes are handed the very same bytes."""
    stage = Stage()
    stage.happen(OpenSession(60_000))
    first, second = stage.watcher("bench:")[0], stage.watcher("bench:")[0]
    _busy(stage, 5)
    stage.settle()
    assert len(first.told) == 1
    assert first.told[0] is second.told[0]


def test_one_go_is_short_however_much_there_is_to_tell() -> None:
    """What is done in one go is bounded by its time, with that of the writes; the next one waits its share."""
    stage = Stage(call_ms=0.01)
    stage.happen(OpenSession(60_000))
    readers = [stage.watcher("")[0] for _ in range(500)]
    before = len(stage.history)
    _busy(stage, 20)
    expected = pushed(stage.history[before:], "")
    goes = []
    while stage.scheduled is not None:
        told_before, began = sum(len(reader.told) for reader in readers), stage.now
        stage.go()
        goes.append(sum(len(reader.told) for reader in readers) - told_before)
        assert stage.now - began < 20
        if stage.scheduled is not None:
            # A quarter of the time at the most.
            assert stage.delays_ms[-1] >= 2.9 * broadcast._GO_MS
    assert all(reader.events == expected for reader in readers)
    # The last one of a go is begun within its time.
    assert (max(goes) - 1) * (0.01 + broadcast._WRITE_MS) <= broadcast._GO_MS


def test_each_go_gets_on_however_long_it_was_kept_from_the_processor() -> None:
    """Where every look at the clock finds the time of a go gone, something is told all the same: one at a time."""
    stage = Stage(call_ms=10 * broadcast._GO_MS)
    stage.happen(OpenSession(60_000))
    readers = [stage.watcher("")[0] for _ in range(5)]
    before = len(stage.history)
    _busy(stage, 4)
    stage.settle()
    assert all(reader.events == pushed(stage.history[before:], "") for reader in readers)
    assert len(stage.delays_ms) >= len(readers)


def test_when_it_was_quiet_events_are_told_at_once_and_then_in_windows() -> None:
    """The first event waits for nothing; those that follow it closely come together a moment later."""
    stage = Stage()
    stage.happen(OpenSession(60_000))
    reader, _ = stage.watcher("")
    _busy(stage, 1)
    assert stage.delays_ms[-1] <= 0
    stage.go()
    assert len(reader.told) == 1
    _busy(stage, 10)
    assert stage.delays_ms[-1] == pytest.approx(broadcast._WINDOW_MS)
    stage.go()
    assert len(reader.told) == 2
    stage.now += 10
    _busy(stage, 1)
    assert stage.delays_ms[-1] <= 0


def test_who_does_not_read_delays_nobody_and_is_told_of_the_gap() -> None:
    """Others hear all of it meanwhile; it hears of the gap when it reads again, and then of what is still kept."""
    stage = Stage(Ring(things_max=40), kept_bytes_max=4_000)
    stage.happen(OpenSession(60_000))
    quick, slow = stage.watcher("bench:")[0], stage.watcher("bench:")
    before = len(stage.history)
    slow[0].is_full = True
    for _ in range(30):
        _busy(stage, 5)
        stage.settle()
    happened = stage.history[before:]
    assert quick.events == pushed(happened, "bench:")
    assert not slow[0].told
    assert 0 < stage.broadcast.shelf.size_bytes <= 4_000
    slow[0].is_full = False
    stage.broadcast.go_on(slow[1])
    stage.settle()
    gap, *rest = slow[0].events
    assert b"$3\r\ngap\r\n" in gap
    assert rest == [event for event in pushed(happened, "bench:") if _position(event) > _position(gap)]
    assert stage.broadcast.shelf.size_bytes == 0


def test_who_fell_behind_by_more_than_is_kept_reads_on_in_the_ring() -> None:
    """What the ring still has is told without a gap, though the batches are gone."""
    stage = Stage(kept_bytes_max=2_000)
    stage.happen(OpenSession(60_000))
    reader, member = stage.watcher("bench:")
    before = len(stage.history)
    reader.is_full = True
    for _ in range(30):
        _busy(stage, 5)
        stage.settle()
    reader.is_full = False
    stage.broadcast.go_on(member)
    stage.settle()
    assert reader.events == pushed(stage.history[before:], "bench:")


def test_a_few_who_watch_little_do_not_wait_for_a_crowd() -> None:
    """While a wave goes to a crowd, who watches something else has its turn among the first."""
    stage = Stage(call_ms=0.01)
    stage.happen(OpenSession(60_000))
    crowd = [stage.watcher("")[0] for _ in range(1_000)]
    single, _ = stage.watcher("bench:3")
    _busy(stage, 5)
    while not single.told:
        assert stage.go()
    assert sum(bool(reader.told) for reader in crowd) < 200


def test_a_long_entry_is_gone_through_in_pieces() -> None:
    """One session that ends with ten thousand holds is told over many goes, in order."""
    stage = Stage(call_ms=0.01)
    stage.happen(OpenSession(60_000))
    for first in range(0, 4_096, 64):
        stage.happen(Acquire(1, tuple(f"n{number:04}" for number in range(first, first + 64))))
    reader, _ = stage.watcher("n")
    before = len(stage.history)
    stage.happen(CloseSession(1))
    goes = 0
    while stage.go():
        goes += 1
    assert goes > 10
    assert reader.events == pushed(stage.history[before:], "n")


def test_nothing_is_kept_of_who_is_gone() -> None:
    """When the last one leaves, with batches untaken, no group, prefix or byte is left, and nobody is woken."""
    stage = Stage()
    stage.happen(OpenSession(60_000))
    watchers = [stage.watcher(name, "bench:")[1] for name in NAMES for _ in range(3)]
    _busy(stage, 3)
    stage.go()
    _busy(stage, 3)
    for member in watchers:
        stage.broadcast.leave(member)
    assert not stage.broadcast.members
    assert not stage.broadcast._groups
    assert len(stage.broadcast._prefixes) == 0
    assert stage.broadcast.shelf.size_bytes == 0
    stage.settle()
    _busy(stage, 1)
    assert stage.scheduled is None


def test_one_that_comes_back_starts_anew() -> None:
    """After a time in which nobody watched, only what happens from then on is told."""
    stage = Stage()
    stage.happen(OpenSession(60_000))
    stage.broadcast.leave(stage.watcher("")[1])
    stage.settle()
    _busy(stage, 3)
    reader, member = stage.watcher("")
    assert stage.broadcast.place_of(member)[0] == stage.position
    _busy(stage, 1)
    stage.settle()
    assert [_position(event) for event in reader.events] == [stage.position]


def test_a_watcher_wants_what_the_rule_says() -> None:
    """Everything with the empty prefix; otherwise what has a name that begins so."""
    member = Member(Reader(), BEFORE_ALL)
    for prefixes, names, expected in (
        (("",), (), True),
        (("",), ("a",), True),
        ((), ("a",), False),
        (("a",), (), False),
        (("b", "c"), ("a", "cd"), True),
        (("b", "c"), ("a", "d"), False),
    ):
        member.prefixes = prefixes
        assert member.wants(names) is expected
