"""The client stops trusting first (G7), however fast the leader's clock runs and however late its answers come."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencehold.locks.trust import DRIFT, Grant, State, margin
from tests.property.test_machine_model import EXAMPLES, PROFILE
from tests.unit.client.talk import NODES, Slot, Talk

TTLS = (0.05, 0.2, 1.0, 7.0, 40.0)


class Leader:
    """A server's logical time as it passes on the client's clock: never faster than its own, which drifts."""

    def __init__(self, speed: float) -> None:
        self.talk = Talk(ttl=300, nodes=NODES[:1])
        self.speed = speed
        self.stood_still_s = 0.0
        self.began_at = self.talk.now
        self.fence = 0
        self.ends: list[tuple[Grant, int]] = []
        self.tell()
        self.talk.open()

    def logical_ms(self) -> int:
        return 1_000 + int((self.talk.now - self.began_at - self.stood_still_s) * 1000 * self.speed)

    def tell(self) -> None:
        """What is said now is said with the logical time of an entry that was just made."""
        self.talk.at_ms = self.logical_ms()

    def reaches(self, instant_ms: int) -> float:
        """When logical time reaches an instant, if nothing holds it up from now on."""
        return self.talk.now + max(0.0, instant_ms - self.logical_ms()) / 1000 / self.speed

    def come_back(self) -> None:
        """A connection that was silent for too long was given up: the session goes on over another."""
        if not self._is_gone():
            return
        while self._is_gone():
            self.talk.wait(max(0.0, self.talk.protocol.wake_at - self.talk.now))
        # Not before: what is asked on the new connection is answered with a time that is no earlier.
        self.tell()
        for _ in self.talk.resume():
            self.talk.reply("OK")

    def _is_gone(self) -> bool:
        self.talk.carry_out()
        return self.talk.connected_to is None

    # What happens.

    def wait(self, seconds: float) -> None:
        self.talk.now += seconds

    def stand_still(self, seconds: float) -> None:
        """Nobody leads for a while."""
        self.talk.now += seconds
        self.stood_still_s += seconds

    def keep_alive(self, way_s: float, entry_s: float) -> None:
        """If one is due, a keep-alive comes, waits for an entry, and is answered."""
        self.talk.protocol.on_timer(self.talk.now)
        self.come_back()
        for words in self.talk.sent():
            if words != ["SESSION.KEEPALIVE"]:
                self.talk.reply("OK")
                continue
            self.wait(way_s)
            came_at = self.logical_ms() + 1
            self.wait(entry_s)
            self.tell()
            self.wait(way_s)
            self.talk.reply({"at": self.talk.at_ms, "ttl_ms": 300_000, "came_at": came_at})

    def acquire(self, ttl: float, way_s: float, waits_s: float | None) -> None:
        """A name is asked for, and granted at once, or after a while; the grant is heard late."""
        self.come_back()
        request, slot = self.talk.ask(ttl=ttl)
        for _ in self.talk.sent()[:-1]:
            # Releases of what has run out here.
            self.talk.reply("OK")
        self.wait(way_s)
        self.tell()
        if waits_s is not None:
            queued = {"queued": 1, "ahead": 0, "at": self.talk.at_ms}
            self.wait(way_s)
            self.talk.reply(queued)
            self.wait(waits_s)
            self.tell()
        self.fence += 1
        granted = self.talk.grant(self.fence, ttl_ms=round(ttl * 1000))
        self.wait(way_s)
        if waits_s is None:
            self.talk.reply(granted)
        else:
            self.talk.push("grant", request.id, granted)
        self.note(slot.result, granted)

    def extend(self, ttl: float, way_s: float) -> None:
        """The last hold that is still trusted gets another end."""
        held = [grant for grant, _ in self.ends if grant.state(self.talk.now) is State.HELD]
        if not held:
            return
        self.come_back()
        self.talk.protocol.extend(held[-1], round(ttl * 1000), Slot(), self.talk.now)
        self.talk.sent()
        self.wait(way_s)
        self.tell()
        extended = self.talk.grant(held[-1].fence, ttl_ms=round(ttl * 1000))
        self.wait(way_s)
        self.talk.reply(extended)
        if held[-1].state(self.talk.now) is not State.LOST:
            self.note(held[-1], extended)

    def note(self, grant: Grant, said: dict[str, Any]) -> None:
        until_ms = said["at"] + said["ttl_ms"]
        self.ends = [(other, end) for other, end in self.ends if other is not grant] + [(grant, until_ms)]


WAYS = st.floats(0, 0.3)
STEPS = st.one_of(
    st.tuples(st.just("wait"), st.floats(0, 30)),
    st.tuples(st.just("stand_still"), st.floats(0, 5)),
    st.tuples(st.just("keep_alive"), WAYS, st.floats(0, 0.2)),
    st.tuples(st.just("acquire"), st.sampled_from(TTLS), WAYS, st.none() | st.floats(0, 20)),
    st.tuples(st.just("extend"), st.sampled_from(TTLS), WAYS),
)


SILENT = [
    ("acquire", 0.05, 0.0, None),
    ("extend", 0.05, 0.25),
    ("wait", 5.0),
    ("keep_alive", 0.0, 0.0),
    ("acquire", 0.05, 0.0, None),
]
"""What is released after the extension is not answered, and the connection is given up."""


@pytest.mark.guarantee("G7")
@settings(PROFILE, max_examples=EXAMPLES // 5)
@example(1.0, SILENT)
@given(st.floats(1 - DRIFT, 1 / (1 - DRIFT)), st.lists(STEPS, max_size=12))
def test_no_hold_is_trusted_when_its_time_may_be_over(speed: float, steps: list[tuple[Any, ...]]) -> None:
    """Whatever was asked, answered late, pushed or extended: each hold ends here before it ends there."""
    leader = Leader(speed)
    for verb, *args in steps:
        getattr(leader, verb)(*args)
        for grant, until_ms in leader.ends:
            if not grant.ending:
                assert grant.own_end <= leader.reaches(until_ms)


@given(st.floats(0, 99), st.sampled_from(TTLS), st.floats(0, 0.02))
def test_a_hold_that_is_answered_directly_loses_no_more_than_its_margin(
    silent_s: float, ttl: float, way_s: float
) -> None:
    """However long ago the last keep-alive was."""
    leader = Leader(1.0)
    leader.wait(silent_s)
    asked_at = leader.talk.now
    leader.acquire(ttl, way_s, None)
    ((grant, _),) = leader.ends
    assert grant.own_end >= asked_at + ttl - margin(ttl) - 1e-6
