"""A conversation with the machine that nobody thought of: every command there is, in any order and any company.

Each rule adds one command to the entry being made up, and mostly sends it off. The same entry then goes to the
machine, to the model (`model`), to a replica that reads it from bytes, and to one that was restored from a
snapshot some time ago; what they say is compared, and the guarantees (`guarantees`, `tables`) are checked.

Names, owners and times are few, so that they meet: every duration is a multiple of 100 ms.
"""

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace
from redis.crc import key_slot

from fencehold.core import acquire, anchors, deadlines, refusals, release, snapshot
from fencehold.core import commands as c
from fencehold.core import outcomes as o
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.policy import PolicyChange, Quota, QuotaMode, Role, Rule, User, Verb
from fencehold.core.snapshot import Snapshot
from fencehold.journal import codec
from fencehold.placement.map import even_map
from tests.property import guarantees as g
from tests.property.model import Model, agrees
from tests.property.tables import g11_free_names_cost_nothing, what_is_alive_has_its_time_of_day

T = TypeVar("T")

LIMITS = Limits(
    name_bytes_max=4,
    owner_bytes_max=4,
    meta_bytes_max=4,
    names_per_request_max=3,
    holds_per_session_max=9,
    waiters_per_name_max=5,
    sessions_max=5,
    answers_per_session_max=12,
    permits_max=3,
    ttl_ms_max=5_000,
    wait_ms_max=3_000,
    lock_delay_ms_max=1_000,
    elapsed_ms_max=2_000,
)
NARROW = (
    Limits(sessions_max=1),
    Limits(holds_per_session_max=2),
    Limits(waiters_per_name_max=1),
    Limits(answers_per_session_max=2),
    Limits(names_per_request_max=1, permits_max=1, elapsed_ms_max=300),
    Limits(ttl_ms_max=500, wait_ms_max=100, lock_delay_ms_max=100),
)
HOMES = ((),) * 9 + ((0, 2), (0, 2), (1, 2), (2, 2))
"""Which shard of how many the machine of a conversation is; mostly the only one."""
LAPSED_MAX = 2
"""What the sessions of a conversation remember of what they lost: few, so that they forget."""
ANCHORS_MAX = 4
NOON = 1_767_268_800_000

KEPT_MAX = 4
"""How many names may be kept for a least time: few, so that there are too many."""

ACQUIRE, OBSERVE, BREAK = Verb.ACQUIRE, Verb.OBSERVE, Verb.BREAK
FIRST = PolicyChange(
    {"z": User(("root",)), "p": User(("all",)), "q": User(("some",))},
    {
        "root": Role((Rule((Verb.ADMIN, BREAK), prefix=""),)),
        "all": Role((Rule((ACQUIRE, OBSERVE), prefix=""),)),
        "some": Role((Rule((ACQUIRE,), prefix="a"), Rule((ACQUIRE, BREAK), name="b"))),
        "none": Role((Rule((), name="a"), Rule((), prefix="c"))),
    },
)
"""The first policy of a conversation, if there is one; then these, in any order."""
CHANGES = (
    PolicyChange({"p": User(("some",))}),
    PolicyChange({"p": User(("all",)), "q": User(("all",))}),
    PolicyChange({"p": User(("all", "none"))}),
    PolicyChange({"q": User(())}),
    PolicyChange({"q": User(("some",), disabled=True)}),
    PolicyChange({"q": None, "p": User(("all",))}),
    PolicyChange({"q": User(("some", "none"))}),
    PolicyChange(roles={"some": Role((Rule((ACQUIRE, BREAK), prefix=""), Rule((OBSERVE,), name="a")))}),
    PolicyChange({"z": None}),
    PolicyChange({"p": User(("gone",))}),
    PolicyChange(quotas={"each": Quota("*", holds=2, waiters=1), "b": Quota(prefix="b", waiters=2)}),
    PolicyChange(quotas={"p": Quota("p", sessions=1, ttl_ms=1_000, wait_ms=300)}),
    PolicyChange(quotas={"each": Quota("*", holds=1, mode=QuotaMode.COUNT), "b": None, "p": None}),
    PolicyChange(quotas={"all": Quota(prefix="", holds=3)}),
    PolicyChange(quotas={"all": None, "each": None}),
)

SHARED, PERMIT = c.Mode.SHARED, c.Mode.PERMIT
WRONG: tuple[dict[str, object], ...] = (
    {"names": ()},
    {"names": ("a", "a")},
    {"names": ("a", "b", "c", "d")},
    {"names": ("",)},
    {"names": ("ééé",)},
    {"owner": "nobody"},
    {"meta": "ééé"},
    {"wait_ms": -2},
    {"wait_ms": 3_100},
    {"ttl_ms": -1},
    {"ttl_ms": 5_100},
    {"lock_delay_ms": -1},
    {"lock_delay_ms": 1_100},
    {"limit": 1},
    {"mode": PERMIT},
    {"mode": PERMIT, "limit": 4},
    {"mode": PERMIT, "limit": 1, "names": ("a", "b")},
    {"at_least_ms": -100},
    {"at_least_ms": 5_100},
    {"at_least_ms": 300, "mode": SHARED},
    {"at_least_ms": 300, "mode": PERMIT, "limit": 1},
    {"at_least_ms": 300, "names": ("a", "a")},
)

# What is picked among grows and shrinks: a number picks, counted round.
picks = st.integers(0, 11)
names = st.sampled_from("aabbc")
several = st.sampled_from((("a",), ("a", "b"), ("b", "a"), ("b",), ("b", "c"), ("c", "a", "b")))
modes = st.sampled_from((c.Mode.EXCLUSIVE, c.Mode.EXCLUSIVE, SHARED, SHARED, PERMIT))
owners = st.sampled_from(("t", "t", "t", "u", ""))
waits = st.sampled_from((c.FOREVER, 300, c.FOREVER, 1_000, 0))
ttls = st.sampled_from((0, 0, 500, 1_000))
delays = st.sampled_from((0, 0, 300, 1_000))
alone = st.sampled_from((True, True, False))


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Let the machine cut and forget early, so that small conversations see it do so."""
    patch.setattr(snapshot, "_SLICE", 1)
    patch.setattr(release, "LAPSED_MAX", LAPSED_MAX)
    patch.setattr(deadlines, "_SLACK", 2)
    patch.setattr(acquire, "KEPT_MAX", KEPT_MAX)
    patch.setattr(anchors, "ANCHORS_MAX", ANCHORS_MAX)
    patch.setattr(refusals, "_NAMES_MAX", 0)


class Conversation(RuleBasedStateMachine):
    """Made up by Hypothesis, judged by the model and the guarantees."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(LIMITS)
        self.replica = Machine(LIMITS)
        self.restored = Machine(LIMITS)
        self.model = Model(LIMITS, LAPSED_MAX, KEPT_MAX, ANCHORS_MAX)
        self.history = g.History(LAPSED_MAX)
        self.onlookers: set[tuple[str, int]] = set()
        self.pending: list[c.Command] = []
        self.unix_ms = 0
        """The time of day that the next entry tells, if it does."""
        self.asked: list[c.Request] = []
        self.snapshot: Snapshot | None = None
        self.snapshot_bytes = b""
        self.drawn = b""
        self.sound = True
        """Whether all that was sent off was judged, and found right."""

    # Sending entries, and judging what comes of them

    def say(self, command: c.Command, alone: bool) -> None:
        """Add a command to the entry; send it unless another may come along."""
        if isinstance(command, c.Acquire | c.Release | c.Extend):
            self.asked.append(command)
        self.pending.append(command)
        if alone or len(self.pending) >= 5:
            self.send(0)

    def send(self, elapsed_ms: int) -> None:
        entry = c.Entry(elapsed_ms, tuple(self.pending), self.unix_ms)
        self.pending, self.unix_ms = [], 0
        self.sound = False
        position = self.machine.position + 1
        applied = self.machine.apply(position, entry)
        self.judge(entry, applied)
        # One reads the entry as it was, the other as a leader writes it, with refusals for what was refused.
        for other, written in ((self.restored, entry), (self.replica, refusals.shortened(entry, applied))):
            read = codec.decode(codec.encode(written))
            g.g12_same_entries_same_bytes(self.machine, other, applied, other.apply(position, read))
        self.sound = True

    def tell_the_time_of_day(self) -> None:
        """Another node leads, or somebody has set a clock, forwards and back. It decides nothing."""
        self.unix_ms = NOON + (len(self.model.anchors) * 7 % 5 - 2) * 3_600_000

    def judge(self, entry: c.Entry, applied: o.Applied) -> None:
        self.compare(entry, applied)
        state = self.machine.state
        self.history.follow(entry, applied)
        g.events_tell_the_story(self.onlookers, entry, applied)
        assert self.onlookers == set(self.history.having)
        g.g2_exclusive_is_exclusive(state)
        g.g4_nobody_waits_in_vain(state)
        g.g6_nothing_refers_to_an_ended_session(state, self.history)
        g.g8_a_waiter_holds_nothing(state, self.history)
        g.g8_granted_whole(state, applied, self.history)
        g.g5_what_is_told_is_what_is(state, self.history)
        g.g9_who_waits_was_told_so(state, self.history)
        g.g9_no_wait_outlasts_its_time(state)
        g11_free_names_cost_nothing(state, self.model)
        what_is_alive_has_its_time_of_day(state, self.model)

    def compare(self, entry: c.Entry, applied: o.Applied) -> None:
        """The machine says what the model says."""
        expected = self.model.apply(entry)
        assert len(applied.outcomes) == len(expected)
        for command, told, right in zip(entry.commands, applied.outcomes, expected, strict=True):
            assert agrees(told, right), f"{command} is told {told}, not {right}"
        assert applied.notices == self.model.notices
        assert applied.repeated == self.model.repeated
        assert (applied.at_ms, self.machine.fence) == (self.model.now_at, self.model.fence)

    # Picking

    def session(self, pick: int) -> int:
        """Mostly one that lives; at times the next to open, maybe in this very entry, or one that has ended."""
        alive = [session.id for session in self.model.sessions if session.ending is None]
        ended = [session.id for session in self.model.sessions if session.ending is not None]
        if pick == 11:
            return ended[-1] if ended else 0
        if alive and pick < 10:
            return alive[pick % len(alive)]
        if not alive:
            # Who wants to speak and finds nobody alive begins a session.
            self.pending.append(self.opening(pick, 5_000, 1_000))
        return len(self.model.sessions) + 1

    def opening(self, pick: int, ttl_ms: int, grace_ms: int, secret: str = "", meta: str = "") -> c.OpenSession:
        """Whose it is matters once there is a policy; some are somebody's before."""
        principal = "pqpqppz"[pick % 7] if self.model.policy.revision or pick % 3 == 0 else ""
        terms = (ttl_ms, grace_ms, secret, meta)
        return c.OpenSessionAs(*terms, principal) if principal else c.OpenSession(*terms)

    def number(self, session: int, pick: int) -> int:
        """A request id: the next mostly, or none, or one left out, or one from before."""
        last = max((ask.request for ask in self.asked if ask.session == session), default=0)
        return {1: 0, 4: 0, 7: last + 2, 10: max(0, last - 1)}.get(pick, last + 1)

    def answered(self, number: int, pick: int) -> int:
        """Up to where answers have arrived: mostly nothing new is said."""
        return max(0, {2: number - 1, 3: number - 2, 5: number - 4, 8: number, 9: number - 1}.get(pick, 0))

    def instants(self) -> list[int]:
        """When something that is there now comes to its end."""
        ends = [hold.until_at for hold in self.model.held()] + [waiter.until_at for waiter in self.model.waiting()]
        ends += [until_at for _, until_at in self.model.delays]
        ends += [kept.until_at for kept in self.model.kept()]
        return sorted(at for at in ends if at > self.model.now_at)

    @staticmethod
    def pick(of: Sequence[T], pick: int) -> T:
        return of[pick % len(of)]

    # The rules: one for each command, more for those that matter more

    @initialize(count=st.sampled_from((2, 3, 1)), home=st.sampled_from(HOMES))
    def begin(self, count: int, home: tuple[int, ...]) -> None:
        if home:
            # In some conversations the machine is one of several, and some names are not its own.
            self.say(c.FoundShard(*home), alone=False)
        for _ in range(count):
            self.say(c.OpenSession(5_000, 1_000), alone=False)
        self.send(0)

    @rule(elapsed_ms=st.sampled_from((100, 200, 300, 500, 1_000, 2_000, 9_000, 0, -100)))
    def tick(self, elapsed_ms: int) -> None:
        if elapsed_ms in (0, 9_000):
            self.tell_the_time_of_day()
        self.send(elapsed_ms)

    @rule(elapsed_ms=st.sampled_from((100, 300, 500, 1_000)))
    def tick_and_renew(self, elapsed_ms: int) -> None:
        """A server at work: time passes in small steps, sessions are kept alive, narrow limits are lifted.

        Now and then it is another one that leads.
        """
        if elapsed_ms > 300:
            self.tell_the_time_of_day()
            self.pending.append(c.Announce(f"node {elapsed_ms}", "a:7420"))
        self.pending.append(c.Renew(tuple(session.id for session in self.model.sessions)))
        if self.model.limits != LIMITS:
            self.pending.append(c.SetLimits(LIMITS))
        self.send(elapsed_ms)

    @precondition(lambda self: self.instants())
    @rule(pick=picks, early_ms=st.sampled_from((0, 0, 100)))
    def tick_to_the_end(self, pick: int, early_ms: int) -> None:
        """Let time pass until something is due, or is about to be."""
        self.send(self.pick(self.instants(), pick) - self.model.now_at - early_ms)

    @rule(ttl=st.sampled_from((5_000, 1_000, 300, 0, 9_000)), grace=st.sampled_from((0, 300, 1_000)), alone=alone)
    def open(self, ttl: int, grace: int, alone: bool) -> None:
        pick = ttl // 1_000 + grace // 300
        self.say(self.opening(pick, ttl, grace, "s" * (grace // 200), "m" * (ttl // 1_000)), alone)

    @rule(who=picks, how=st.sampled_from((c.CloseSession, c.Suspend)), alone=alone)
    def leave(self, who: int, how: type[c.CloseSession] | type[c.Suspend], alone: bool) -> None:
        self.say(how(self.session(who)), alone)

    @rule(who=st.lists(picks, max_size=3), alone=alone)
    def renew(self, who: list[int], alone: bool) -> None:
        self.say(c.Renew(tuple(map(self.session, who))), alone)

    @rule(who=picks, pick=picks, alone=alone)
    def settle(self, who: int, pick: int, alone: bool) -> None:
        session = self.session(who)
        known = self.model.alive(session)
        numbers = [number for number, _ in known.final] if known else []
        self.say(c.Settle(session, tuple(numbers[: pick % 3]) if numbers else (pick,)), alone)

    @rule(who=picks, name=names, owner=owners, alone=alone)
    def acquire(self, who: int, name: str, owner: str, alone: bool) -> None:
        session = self.session(who)
        self.say(c.Acquire(session, (name,), self.number(session, 0), owner=owner), alone)

    @rule(
        who=picks,
        names=several,
        pick=picks,
        shared=st.booleans(),
        owner=owners,
        wait_ms=waits,
        ttl_ms=ttls,
        delay_ms=delays,
        alone=alone,
    )
    def acquire_several(
        self,
        *,
        who: int,
        names: tuple[str, ...],
        pick: int,
        shared: bool,
        owner: str,
        wait_ms: int,
        ttl_ms: int,
        delay_ms: int,
        alone: bool,
    ) -> None:
        session = self.session(who)
        number = self.number(session, pick)
        mode = SHARED if shared else c.Mode.EXCLUSIVE
        answered = self.answered(number, pick)
        ask = c.Acquire(session, names, number, answered, owner, mode, 0, wait_ms, ttl_ms, delay_ms, "m")
        self.say(ask, alone)

    @rule(
        who=picks,
        names=several,
        pick=picks,
        owner=owners,
        wait_ms=waits,
        ttl_ms=ttls,
        at_least_ms=st.sampled_from((300, 1_000, 1_000, 3_000)),
        alone=alone,
    )
    def acquire_at_least(
        self,
        *,
        who: int,
        names: tuple[str, ...],
        pick: int,
        owner: str,
        wait_ms: int,
        ttl_ms: int,
        at_least_ms: int,
        alone: bool,
    ) -> None:
        session = self.session(who)
        delay_ms = 300 if pick % 4 == 0 else 0
        ask = c.AcquireAtLeast(
            session,
            names,
            self.number(session, pick),
            owner=owner,
            wait_ms=wait_ms,
            ttl_ms=ttl_ms,
            lock_delay_ms=delay_ms,
            meta="m",
            at_least_ms=at_least_ms,
        )
        self.say(ask, alone)

    @rule(who=picks, name=names, owner=owners, wait_ms=waits, ttl_ms=ttls, alone=alone)
    def acquire_shared(self, *, who: int, name: str, owner: str, wait_ms: int, ttl_ms: int, alone: bool) -> None:
        session = self.session(who)
        number = self.number(session, who)
        # Shares that run out, at different times and with different delays: the longest delay counts.
        delay_ms = {500: 300, 1_000: 1_000}.get(ttl_ms, 0)
        self.say(c.Acquire(session, (name,), number, 0, owner, SHARED, 0, wait_ms, ttl_ms, delay_ms), alone)

    @rule(who=picks, name=names, owner=owners, limit=st.sampled_from((2, 1, 1, 3)), wait_ms=waits, alone=alone)
    def acquire_permit(self, *, who: int, name: str, owner: str, limit: int, wait_ms: int, alone: bool) -> None:
        session = self.session(who)
        number = self.number(session, who)
        delay_ms = 300 if limit == 3 else 0
        ask = c.Acquire(
            session, (name,), number, 0, owner, PERMIT, limit, wait_ms, wait_ms if wait_ms > 0 else 0, delay_ms
        )
        self.say(ask, alone)

    @rule(names=several, who=picks, crowd=st.lists(modes, min_size=2, max_size=4), owner=owners)
    def contend(self, names: tuple[str, ...], who: int, crowd: list[c.Mode], owner: str) -> None:
        """Several ask for the same in one entry; if the first asks for a permit, they all do."""
        for count, mode in enumerate(crowd):
            session = self.session((who + count) % 10)
            number = self.number(session, 0)
            if crowd[0] is PERMIT:
                self.say(c.Acquire(session, names[:1], number, 0, owner, PERMIT, len(names)), alone=False)
            else:
                self.say(c.Acquire(session, names, number, 0, owner, mode, int(mode is PERMIT)), alone=False)
        self.send(0)

    @precondition(lambda self: self.model.held())
    @rule(pick=picks, start=st.integers(0, 2), mode=modes, alone=alone)
    def acquire_more(self, pick: int, start: int, mode: c.Mode, alone: bool) -> None:
        """Who has something asks for something else: that is how circles come about."""
        ask = self.pick(self.model.held(), pick).ask
        mine = {hold.name for hold in self.model.held(session=ask.session) if hold.ask.owner == ask.owner}
        others = tuple(name for name in "abcabc"[start : start + 3] if name not in mine)
        names = others if pick % 4 == 0 and mode is not PERMIT else others[:1]
        number = self.number(ask.session, pick)
        limit = int(mode is PERMIT)
        self.say(c.Acquire(ask.session, names, number, owner=ask.owner, mode=mode, limit=limit), alone)

    @rule(who=picks, how=st.sampled_from(WRONG), alone=alone)
    def acquire_wrongly(self, who: int, how: dict[str, object], alone: bool) -> None:
        session = self.session(who)
        right: dict[str, object] = {"names": ("a",), "wait_ms": 0}
        kind = c.AcquireAtLeast if "at_least_ms" in how else c.Acquire
        ask = kind(session, request=self.number(session, who), **{**right, **how})  # type: ignore[arg-type]
        self.say(ask, alone)

    @precondition(lambda self: self.asked)
    @rule(pick=picks, answered=picks, alone=alone)
    def repeat(self, pick: int, answered: int, alone: bool) -> None:
        ask = self.asked[-1 - pick % len(self.asked)]
        again = self.answered(ask.request, answered)
        fields = {**{f: getattr(ask, f) for f in ask.__struct_fields__}, "answered": again}
        self.say(type(ask)(**fields), alone)

    @precondition(lambda self: self.asked)
    @rule(pick=picks, beyond=st.sampled_from((0, 0, 0, 0, 1, 2)), alone=alone)
    def cancel(self, pick: int, beyond: int, alone: bool) -> None:
        ask = self.asked[-1 - pick % len(self.asked)]
        self.say(c.Cancel(ask.session, ask.request + beyond), alone)

    @precondition(lambda self: self.model.waiting())
    @rule(pick=picks, alone=alone)
    def cancel_waiter(self, pick: int, alone: bool) -> None:
        ask = self.pick(self.model.waiting(), pick).ask
        self.say(c.Cancel(ask.session, ask.request), alone)

    @precondition(lambda self: self.model.held())
    @rule(pick=picks, number=picks, alone=alone)
    def release(self, pick: int, number: int, alone: bool) -> None:
        hold = self.pick(self.model.held(), pick)
        session = self.session(number - 9) if number > 8 else hold.ask.session
        names = (hold.ask.names, (hold.name,), (), hold.ask.names * 2)[{3: 1, 6: 2, 9: 3}.get(number, 0)]
        self.say(c.Release(session, names, hold.fence, self.number(session, number)), alone)

    @precondition(lambda self: self.model.waiting())
    @rule(pick=picks, alone=alone)
    def hand_over(self, pick: int, alone: bool) -> None:
        """Release what somebody waits for."""
        wanted = {name for waiter in self.model.waiting() for name in waiter.ask.names}
        holds = [hold for hold in self.model.held() if hold.name in wanted]
        if holds:
            hold = self.pick(holds, pick)
            self.say(c.Release(hold.ask.session, hold.ask.names, hold.fence), alone)

    @precondition(lambda self: self.model.fence)
    @rule(who=picks, names=several, back=st.integers(-2, 4), number=picks, alone=alone)
    def release_stale(self, who: int, names: tuple[str, ...], back: int, number: int, alone: bool) -> None:
        session = self.session(who)
        self.say(c.Release(session, names, self.model.fence - back, self.number(session, number)), alone)

    @precondition(lambda self: self.model.ended)
    @rule(pick=picks, extend=st.booleans(), alone=alone)
    def release_again(self, pick: int, extend: bool, alone: bool) -> None:
        hold = self.model.ended[-1 - pick % len(self.model.ended)]
        key = (hold.ask.session, hold.ask.names, hold.fence)
        self.say(c.Extend(*key, 500) if extend else c.Release(*key), alone)

    @precondition(lambda self: self.model.held())
    @rule(pick=picks, ttl=st.sampled_from((0, 300, 1_000, 9_000, -1)), who=picks, alone=alone)
    def extend(self, pick: int, ttl: int, who: int, alone: bool) -> None:
        hold = self.pick(self.model.held(), pick)
        session = self.session(who) if who > 9 else hold.ask.session
        names = (hold.ask.names, (hold.name,), (), hold.ask.names * 2)[{3: 1, 6: 2, 9: 3}.get(who, 0)]
        self.say(c.Extend(session, names, hold.fence, ttl, self.number(session, who)), alone)

    @precondition(lambda self: self.model.held() or self.model.kept())
    @rule(name=names, back=st.sampled_from((-1, 0, 1, 2)), alone=alone)
    def break_holds(self, name: str, back: int, alone: bool) -> None:
        terms = (name, 0 if back < 0 else max(0, self.model.fence - back), "ops" if back < 2 else "")
        principal = ("z", "z", "q", "")[back]
        self.say(c.BreakAs(*terms, principal) if principal else c.Break(*terms), alone)

    @rule(by=st.sampled_from((3, 0, -1, 100, 1 << 53, -(1 << 53))), alone=alone)
    def raise_fence(self, by: int, alone: bool) -> None:
        self.say(c.RaiseFence(self.model.fence + by), alone)
        if by == 3:
            self.say(c.FoundShard(0, 2), alone)

    @precondition(lambda self: self.model.home is not None)
    @rule(
        name=st.sampled_from("abbc"),
        how=st.sampled_from(("map", "map", "map", "seal", "open", "open", "force")),
        back=st.sampled_from((0, 0, 0, 0, 1, 2)),
        alone=alone,
    )
    def move_slot(self, name: str, how: str, back: int, alone: bool) -> None:
        """A slot leaves, or comes, or comes back; now and then by a command that is told again, or comes late."""
        if how == "map":
            placed = self.model.placed or even_map(2)
            slot = key_slot(name.encode())
            moved = placed.moved([slot], 1 - placed.shard_of(slot))
            placed = placed if back == 1 else replace(moved, version=moved.version - back)
            follow = back == 2 or name == "c"
            self.say(c.FollowMap(placed) if follow else c.ChangeMap(placed, "z" if name == "b" else ""), alone)
        elif how == "seal":
            self.say(c.SealSlots(), alone)
        elif how == "force":
            self.say(c.ForceSlots("ops", "z" if back else ""), alone)
        else:
            slots = tuple(self.model.standing("arriving")) if back < 2 else (key_slot(name.encode()),)
            version = self.model.version() - (back == 1)
            self.say(c.OpenSlots(slots, max(0, self.model.fence - 2 + 3 * back), version), alone)

    @rule(limits=st.sampled_from((*NARROW, LIMITS)), alone=alone)
    def set_limits(self, limits: Limits, alone: bool) -> None:
        self.say(c.SetLimits(limits), alone)

    @precondition(lambda self: len(self.model.sessions) > 3)
    @rule(pick=st.integers(0, 9), alone=alone)
    def begin_policy(self, pick: int, alone: bool) -> None:
        """From here on, in some conversations, everybody is somebody."""
        if not self.model.policy.revision and not any(isinstance(each, c.ChangePolicy) for each in self.pending):
            self.say(c.ChangePolicy(0 if pick else 1, FIRST), alone)

    @precondition(lambda self: self.model.policy.revision)
    @rule(change=st.sampled_from(CHANGES), who=st.sampled_from("zzzzzp"), back=st.sampled_from((0,) * 9 + (1,)))
    def change_policy(self, change: PolicyChange, who: str, back: int) -> None:
        if self.pending:
            self.send(0)
        self.say(c.ChangePolicy(self.model.policy.revision - back, change, who), alone=True)

    # Snapshots

    @rule()
    def restore(self) -> None:
        """G12: from here on, a machine restored from a snapshot goes the same way."""
        self.restored = Machine.restore(b"".join(self.replica.snapshot()))

    @precondition(lambda self: self.snapshot is None)
    @rule()
    def start_snapshot(self) -> None:
        self.snapshot_bytes = b"".join(self.machine.snapshot())
        assert self.snapshot_bytes[-32:].hex() == self.machine.state_hash()
        self.snapshot = self.machine.snapshot()
        self.drawn = b""

    @precondition(lambda self: self.snapshot is not None)
    @rule(count=st.integers(1, 2))
    def draw_snapshot(self, count: int) -> None:
        """G12: however long it takes to draw, a snapshot is of the moment it was begun."""
        assert self.snapshot is not None
        for _ in range(count):
            chunk = next(self.snapshot, b"")
            self.drawn += chunk
            if not chunk:
                assert self.drawn == self.snapshot_bytes, "G12: the snapshot is of another moment"
                self.snapshot = None
                return

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def give_up_snapshot(self) -> None:
        assert self.snapshot is not None
        self.snapshot.close()
        self.snapshot = None

    def teardown(self) -> None:
        """Whatever was said, when all sessions have ended and what was kept from being granted is over, nothing is
        left."""
        if not self.sound:
            return
        while self.snapshot is not None:
            self.draw_snapshot(1)
        self.pending.append(c.SetLimits(LIMITS))
        self.send(0)
        self.pending = [c.CloseSession(session) for session in self.machine.state.sessions]
        self.send(0)
        for _ in range(0, LIMITS.ttl_ms_max, LIMITS.elapsed_ms_max):
            self.send(LIMITS.elapsed_ms_max)
        self.unix_ms = NOON
        self.send(0)
        g.g9_every_request_has_ended(self.machine.state, self.history)
        g.g11_nothing_is_left(self.machine.state)
