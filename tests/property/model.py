"""The model: what the machine should do, written so that it can be checked by reading it.

It shares the machine's vocabulary (commands, outcomes) and nothing else. There are no indexes: sessions, holds and
waiters are lists of all that ever were, and every question is a scan over them. Nothing is forgotten but what the
law of repetition says is forgotten, so the model also knows what became of every hold.

Where the law leaves the words of an answer open, the model says what is allowed: `RefusedFor` any of some codes,
a deadlock for any `Circle` out of some edges.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from redis.crc import key_slot

from fencehold.core import commands as c
from fencehold.core import outcomes as o
from fencehold.core.limits import Limits
from fencehold.core.policy import Policy, PolicyChange, Quota, QuotaMode, Rule, User, Verb
from fencehold.placement.map import ShardMap

Owner: TypeAlias = tuple[int, str]
Edge: TypeAlias = tuple[Owner, Owner, o.Link]


@dataclass(frozen=True)
class RefusedFor:
    """Refused, with one of these codes."""

    codes: frozenset[o.Code]


@dataclass(frozen=True)
class Circle:
    """Refused as a deadlock: a circle of this length, made of these edges."""

    edges: frozenset[Edge]
    length: int


Expected: TypeAlias = o.Outcome | RefusedFor | Circle

USAGE = RefusedFor(frozenset({o.Code.USAGE}))
LIMIT = RefusedFor(frozenset({o.Code.LIMIT}))
QUEUE_FULL = RefusedFor(frozenset({o.Code.QUEUE_FULL}))
DENIED = RefusedFor(frozenset({o.Code.DENIED}))
CONFLICT = RefusedFor(frozenset({o.Code.CONFLICT}))
MOVED = RefusedFor(frozenset({o.Code.MOVED}))
ARRIVING = RefusedFor(frozenset({o.Code.ARRIVING}))


def agrees(told: o.Outcome, expected: Expected) -> bool:
    """Whether an outcome is one that the model allows."""
    if isinstance(expected, RefusedFor):
        return isinstance(told, o.Refused) and told.code in expected.codes
    if isinstance(expected, Circle):
        return isinstance(told, o.Deadlock) and is_circle(told.circle, expected)
    return told == expected


def is_circle(links: tuple[o.Link, ...], circle: Circle) -> bool:
    """Whether each link is true, leads to the owner of the next, and the last to the first."""
    owners = [(link.session, link.owner) for link in links]
    steps = zip(owners, owners[1:] + owners[:1], links, strict=True)
    return len(links) == circle.length and all(step in circle.edges for step in steps)


@dataclass
class Session:
    """A session, alive until it has an ending."""

    id: int
    ttl_ms: int
    grace_ms: int
    until_at: int
    opened_fence: int
    meta: str
    opened_at: int
    anchor: int
    """How many anchors there had been when it opened: its time of day is by the last of them."""
    principal: str
    ending: o.Ending | None = None
    latest: int = 0
    answered: int = 0
    direct: list[tuple[int, Expected]] = field(default_factory=list)
    """Answers given at once, in that order, and their request ids."""
    final: list[tuple[int, Expected]] = field(default_factory=list)
    """Answers given to those who had waited."""


@dataclass
class Hold:
    """A name had by a session, until it has an ending."""

    name: str
    fence: int
    since_at: int
    until_at: int
    ask: c.Acquire
    anchor: int
    ending: o.Ending | None = None


@dataclass
class Waiter:
    """A request in the queue, until it has an answer or, with its session, an end without one."""

    ticket: int
    ask: c.Acquire
    since_at: int
    until_at: int
    anchor: int
    gone: bool = False


@dataclass
class Kept:
    """A name kept for a least time, until that is over or was ended."""

    name: str
    fence: int
    since_at: int
    until_at: int
    ask: c.AcquireAtLeast
    session_meta: str
    anchor: int
    ended: bool = False


def _rank(rule: Rule, name: str) -> int:
    """How specific a rule is about a name; -1: not at all."""
    if rule.name is not None:
        return 1_000 if rule.name == name else -1
    return len(rule.prefix or "") if name.startswith(rule.prefix or "") else -1


def with_change(policy: Policy, change: PolicyChange) -> Policy:
    """A policy after a change that was taken."""
    pairs = ((policy.users, change.users), (policy.roles, change.roles), (policy.quotas, change.quotas))
    tables = [{name: value for name, value in {**old, **new}.items() if value is not None} for old, new in pairs]
    return Policy(policy.revision + 1, *tables)  # type: ignore[arg-type]


def may(policy: Policy, principal: str, verb: Verb, name: str) -> bool:
    """By the rule for the name, else by that for its longest prefix; of several, one that forbids wins."""
    if not policy.revision:
        return True
    user = policy.users.get(principal)
    roles = () if user is None or user.disabled else user.roles
    rules = [rule for role in roles for rule in policy.roles[role].rules]
    ranks = [_rank(rule, name) for rule in rules if _rank(rule, name) >= 0]
    best = [rule for rule in rules if ranks and _rank(rule, name) == max(ranks)]
    return all(rule.allow for rule in best) and any(verb in rule.allow for rule in best)


class Model:
    """Takes entries, and says what a machine must make of them."""

    def __init__(self, limits: Limits, lapsed_max: int, kept_max: int, anchors_max: int) -> None:
        self.limits = limits
        self.kept_max = kept_max
        self.anchors_max = anchors_max
        self.anchors: list[tuple[int, int, int, int]] = []
        """Every anchor there ever was: its offset, and the newest session, ticket and fence before it."""
        self.anchors_gone = 0
        """So many of them, from the first, are forgotten."""
        self.leader = ("", "")
        self.home: tuple[int, int] | None = None
        """Which shard of how many, if there are several."""
        self.moves: list[tuple[int, int, str, int, int]] = []
        """All that ever happened to slots: slot, version, stage, where to, fence. The last of a slot counts."""
        self.placed: ShardMap | None = None
        self.policy = Policy()
        self.lapsed_max = lapsed_max
        self.now_at = 0
        self.fence = 0
        self.sessions: list[Session] = []
        self.holds: list[Hold] = []
        self.ended: list[Hold] = []
        """Holds in the order in which they ended."""
        self.waiters: list[Waiter] = []
        """In the order of their tickets, for ever."""
        self.delays: list[tuple[str, int]] = []
        """Every lock-delay there ever was, and its end."""
        self.least: list[Kept] = []
        """Every least time there ever was."""
        self.notices: list[tuple[int, o.Notice]] = []
        self.repeated: list[int] = []
        self.index = -1

    def apply(self, entry: c.Entry) -> list[Expected]:
        """What is told of each command. `notices` and `repeated` then say the rest."""
        self.notices, self.repeated, self.index = [], [], -1
        kept = self.kept()
        self.now_at += max(0, min(entry.elapsed_ms, self.limits.elapsed_ms_max))
        if entry.unix_ms:
            self.drop_anchor(entry.unix_ms, kept)
        self.end_what_is_due()
        told: list[Expected] = []
        for self.index, command in enumerate(entry.commands):
            told.append(self.act(command))
        return told

    def act(self, command: c.Command) -> Expected:  # noqa: PLR0912
        match command:
            case c.SetLimits() | c.RaiseFence() | c.Announce():
                return self.set(command)
            case c.ApplyCells() | c.CloseHome() | c.SealHome() | c.OpenHome() | c.LapseHomes() | c.ResumeHomes():
                raise NotImplementedError("cells have a model of their own: test_home_moves")
            case c.RefuseWait():
                raise NotImplementedError("circles through several shards have a test of their own")
            case c.FoundShard() | c.ChangeMap() | c.FollowMap() | c.SealSlots() | c.OpenSlots() | c.ForceSlots():
                return self.place(command)
            case c.ChangePolicy():
                return self.change_policy(command)
            case c.FollowPolicy():
                return self.enact(command.policy)
            case c.OpenSession():
                return self.open(command)
            case c.Renew():
                return self.renew(command)
            case c.Break():
                return self.break_holds(command)
        session = self.alive(command.session)
        if session is None:
            return o.NoSession(command.session, ended=0 < command.session <= len(self.sessions))
        match command:
            case c.CloseSession():
                self.end_session(session, o.Ending.CLOSED)
                self.hand_on()
                return o.Closed(session.id)
            case c.Suspend():
                session.until_at = min(session.until_at, self.now_at + session.grace_ms)
                return o.Suspended(session.id, session.until_at)
            case c.Settle():
                for number in dict.fromkeys(command.requests):
                    settled = [(known, answer) for known, answer in session.final if known == number]
                    session.final = [(known, answer) for known, answer in session.final if known != number]
                    # Until the id is acknowledged, too, a copy of the request may still come.
                    session.direct += settled if number > session.answered else []
                return o.Settled(session.id)
            case c.Cancel():
                return self.cancel(session, command.request)
        return self.once(session, command)

    def found(self, command: c.FoundShard) -> Expected:
        told = (command.shard, command.shards)
        if not (2 <= command.shards <= 1_024 and 0 <= command.shard < command.shards):
            return USAGE
        if self.home != told and (self.home is not None or self.sessions):
            return USAGE
        self.home = told
        return o.ShardFounded(*told)

    def not_here(self, ask: c.Acquire) -> Expected | None:
        """Why a request is not taken here, by the first of its names that is not granted here."""
        for slot in (key_slot(name.encode()) for name in ask.names if self.home is not None):
            if self.stage(slot) == "arriving" and ask.wait_ms == 0:
                return ARRIVING
            if self.stage(slot) not in ("arriving", "open"):
                return MOVED
        return None

    def arrives(self, name: str) -> bool:
        return self.home is not None and self.stage(key_slot(name.encode())) == "arriving"

    def last_move(self, slot: int) -> tuple[int, int, str, int, int] | None:
        return next((move for move in reversed(self.moves) if move[0] == slot), None)

    def stage(self, slot: int) -> str:
        """Each shard has an equal part of the slots, in order, but for those that have moved."""
        move = self.last_move(slot)
        if move is not None:
            return move[2]
        shard, shards = self.home or (0, 1)
        return "open" if shard * 16_384 // shards <= slot < (shard + 1) * 16_384 // shards else "elsewhere"

    def standing(self, stage: str) -> list[int]:
        """The slots that have come to a stage."""
        return [slot for slot in sorted({move[0] for move in self.moves}) if self.stage(slot) == stage]

    def left(self, slot: int) -> set[str]:
        """The names of a slot that are held, awaited, delayed or kept."""
        names = {hold.name for hold in self.held()} | {kept.name for kept in self.kept()}
        names |= {name for name, _ in self.delays if self.is_delayed(name)}
        names |= {name for waiter in self.waiting() for name in waiter.ask.names}
        return {name for name in names if key_slot(name.encode()) == slot}

    def place(self, command: c.Placing) -> Expected:
        match command:
            case c.FoundShard():
                return self.found(command)
            case c.SealSlots():
                return self.seal()
            case c.OpenSlots():
                return self.open_slots(command)
            case c.FollowMap():
                return self.take(command.placed)
        if self.policy.revision and not self.is_admin(self.policy, command.principal):
            return DENIED
        if isinstance(command, c.ForceSlots):
            return self.force(command.by)
        return self.take(command.placed) if 0 <= command.placed.version - self.version() <= 1 else CONFLICT

    def version(self) -> int:
        return self.placed.version if self.placed is not None else 1

    def take(self, placed: ShardMap) -> Expected:
        if self.home is None or len({each.shard for each in placed.ranges} - set(range(self.home[1]))):
            return USAGE
        if placed != self.placed:
            if placed.version <= self.version() or self.standing("closing") or self.standing("arriving"):
                return CONFLICT
            self.placed = placed
            # The maps of conversations differ in the slots of a few names only.
            for slot in map(key_slot, (b"a", b"b", b"c")):
                to = placed.shard_of(slot)
                if (self.stage(slot) == "open") != (to == self.home[0]):
                    stage = "arriving" if to == self.home[0] else "closing"
                    self.moves.append((slot, placed.version, stage, to, 0))
            self.seal()
        return o.MapTaken(placed.version, len(self.standing("closing")), len(self.standing("arriving")))

    def seal(self) -> Expected:
        done = [slot for slot in self.standing("closing") if not self.left(slot)]
        for slot in done:
            _, version, _, to, _ = self.last_move(slot) or (0,) * 5
            self.moves.append((slot, version, "closed", to, self.fence))
        return o.SlotsSealed(len(done), len(self.standing("closing")))

    def open_slots(self, command: c.OpenSlots) -> Expected:
        if self.home is None or not 0 <= command.fence < 2**53:
            return USAGE
        moves = [self.last_move(slot) for slot in command.slots]
        if any(m is None or m[1] != command.version or m[2] not in ("arriving", "open") for m in moves):
            return CONFLICT
        above = self.fence = max(self.fence, command.fence)
        opened = sorted({slot for slot in command.slots if self.stage(slot) == "arriving"})
        for slot in opened:
            self.moves.append((slot, command.version, "open", self.home[0], command.fence))
        self.hand_on()
        return o.SlotsOpened(len(opened), above)

    def force(self, by: str) -> Expected:
        if self.home is None:
            return USAGE
        names = sorted(name for slot in self.standing("closing") for name in self.left(slot))
        waiters = [waiter for waiter in self.waiting() if set(waiter.ask.names) & set(names)]
        for waiter in waiters:
            slots = [key_slot(name.encode()) for name in waiter.ask.names]
            leaving = next(slot for slot in slots if self.stage(slot) == "closing")
            to = (self.last_move(leaving) or (0,) * 5)[3]
            detail = f"{leaving} is a slot of shard {to}, and this is shard {self.home[0]}"
            self.end_wait(waiter, o.Refused(o.Code.MOVED, detail))
        self.hand_on()
        holds = [hold for name in names for hold in self.held(name)]
        self.fence += bool(holds)
        for kept in self.kept():
            kept.ended = kept.ended or kept.name in names
        for hold in holds:
            self.take_away(hold, o.Ending.BROKEN, by)
        self.seal()
        return o.SlotsForced(len(holds), len(waiters))

    def set(self, command: c.SetLimits | c.RaiseFence | c.Announce) -> Expected:
        match command:
            case c.SetLimits():
                self.limits = command.limits
                return o.LimitsSet()
            case c.Announce():
                self.leader = (command.node, command.address)
                return o.Announced()
        if not 0 <= command.at_least < 2**53:
            return USAGE
        self.fence = max(self.fence, command.at_least)
        return o.FenceRaised(self.fence)

    # What there is now

    def alive(self, session_id: int) -> Session | None:
        return next((s for s in self.sessions if s.id == session_id and s.ending is None), None)

    def held(self, name: str | None = None, session: int | None = None, fence: int | None = None) -> list[Hold]:
        """The holds there are, by fence, and those of one fence in the order they were asked for."""
        return [
            hold
            for hold in self.holds
            if hold.ending is None
            and (name is None or hold.name == name)
            and (session is None or hold.ask.session == session)
            and (fence is None or hold.fence == fence)
        ]

    def waiting(self, name: str | None = None, session: int | None = None) -> list[Waiter]:
        """Who waits, by ticket."""
        return [
            waiter
            for waiter in self.waiters
            if not waiter.gone
            and (name is None or name in waiter.ask.names)
            and (session is None or waiter.ask.session == session)
        ]

    def is_delayed(self, name: str) -> bool:
        return any(name == delayed and until_at > self.now_at for delayed, until_at in self.delays)

    def kept(self, name: str | None = None) -> list[Kept]:
        """The names that are kept for a least time now, in the order of their grants."""
        return [
            kept
            for kept in self.least
            if not kept.ended and kept.until_at > self.now_at and (name is None or kept.name == name)
        ]

    def admits(self, name: str, mode: c.Mode) -> bool:
        """Whether the holds on a name, its lock-delay and its least time leave room for one more in this mode."""
        holds = self.held(name)
        if self.is_delayed(name) or self.kept(name):
            return False
        if not holds:
            return True
        if mode is c.Mode.EXCLUSIVE or any(hold.ask.mode is not mode for hold in holds):
            return False
        return mode is c.Mode.SHARED or len(holds) < holds[0].ask.limit

    def lapsed(self, session: int) -> list[tuple[int, str]]:
        """Fence and name of the last holds that were taken from a session."""
        unclean = (o.Ending.EXPIRED, o.Ending.BROKEN)
        taken = [h for h in self.ended if h.ask.session == session and h.ending in unclean]
        return [(hold.fence, hold.name) for hold in taken[-self.lapsed_max :]]

    # Time and sessions

    def drop_anchor(self, unix_ms: int, kept: list[Kept]) -> None:
        """From here on it is this time of day; anchors that nobody alive came after are forgotten."""
        self.anchors.append((unix_ms - self.now_at, len(self.sessions), len(self.waiters), self.fence))
        count = len(self.anchors)
        used = [session.anchor for session in self.sessions if session.ending is None]
        needed = min((*used, *(each.anchor for each in kept)), default=count)
        self.anchors_gone = max(self.anchors_gone, needed - 1, count - self.anchors_max)

    def unix_ms(self, anchor: int, instant_at: int) -> int | None:
        """The time of day of an instant, by the last of so many anchors."""
        return self.anchors[anchor - 1][0] + instant_at if anchor > self.anchors_gone else None

    def end_what_is_due(self) -> None:
        due = [s for s in self.sessions if s.ending is None and s.until_at <= self.now_at]
        for session in sorted(due, key=lambda s: (s.until_at, s.id)):
            self.end_session(session, o.Ending.EXPIRED)
        ripe = [hold for hold in self.held() if 0 < hold.until_at <= self.now_at]
        for hold in sorted(ripe, key=lambda h: (h.until_at, h.fence, h.name)):
            self.take_away(hold, o.Ending.EXPIRED)
        over = [waiter for waiter in self.waiting() if 0 < waiter.until_at <= self.now_at]
        for waiter in sorted(over, key=lambda w: (w.until_at, w.ticket)):
            self.end_wait(waiter, o.TimedOut(waiter.ask.names, self.now_at - waiter.since_at))
        self.hand_on()

    def open(self, command: c.OpenSession) -> Expected:
        limits, codes, principal = self.limits, set(), getattr(command, "principal", "")
        if self.user(principal) is None:
            return DENIED
        quota = self.quota(principal)
        if quota.mode is QuotaMode.ENFORCE:
            mine = [each for each in self.sessions if each.ending is None and each.principal == principal]
            if quota.sessions and len(mine) >= quota.sessions:
                return LIMIT
            if quota.ttl_ms and command.ttl_ms > quota.ttl_ms:
                return LIMIT
        if sum(session.ending is None for session in self.sessions) >= limits.sessions_max:
            codes.add(o.Code.LIMIT)
        if not 1 <= command.ttl_ms <= limits.ttl_ms_max or not 0 <= command.grace_ms <= command.ttl_ms:
            codes.add(o.Code.USAGE)
        if any(len(text.encode()) > limits.meta_bytes_max for text in (command.meta, command.secret)):
            codes.add(o.Code.LIMIT)
        if codes:
            return RefusedFor(frozenset(codes))
        number, until_at = len(self.sessions) + 1, self.now_at + command.ttl_ms
        opened = (until_at, self.fence, command.meta, self.now_at, len(self.anchors), principal)
        self.sessions.append(Session(number, command.ttl_ms, command.grace_ms, *opened))
        return o.Opened(number, self.now_at, command.ttl_ms, command.grace_ms)

    def renew(self, command: c.Renew) -> Expected:
        ended = tuple(number for number in command.sessions if self.alive(number) is None)
        for session in filter(None, map(self.alive, command.sessions)):
            session.until_at = self.now_at + session.ttl_ms
        return o.Renewed(self.now_at, ended)

    def end_session(self, session: Session, ending: o.Ending) -> None:
        session.ending = ending
        waiters = self.waiting(session=session.id)
        for waiter in waiters:
            waiter.gone = True
        holds = sorted(self.held(session=session.id), key=lambda hold: (hold.fence, hold.name))
        for hold in holds:
            self.end_hold(hold, ending)
        had = tuple((hold.name, hold.fence) for hold in holds)
        tickets = tuple(waiter.ticket for waiter in waiters)
        owners = tuple(hold.ask.owner for hold in holds)
        delays_ms = () if ending is o.Ending.CLOSED else tuple(hold.ask.lock_delay_ms for hold in holds)
        told = (had, tickets, session.meta, session.principal, owners, delays_ms)
        self.tell(o.SessionEnded(session.id, ending, *told))

    # The policy

    def change_policy(self, command: c.ChangePolicy) -> Expected:
        before, change = self.policy, command.change
        if before.revision and not self.is_admin(before, command.principal):
            return DENIED
        if command.revision != before.revision:
            return RefusedFor(frozenset({o.Code.CONFLICT}))
        after = with_change(before, change)
        if any(role not in after.roles for user in after.users.values() for role in user.roles):
            return USAGE
        if not any(self.is_admin(after, name) for name in after.users):
            return USAGE
        return self.enact(after)

    def enact(self, policy: Policy) -> Expected:
        self.policy = policy
        gone = [s for s in self.sessions if s.ending is None and self.user(s.principal) is None]
        for session in gone:
            self.end_session(session, o.Ending.REVOKED)
        refused = 0
        for waiter in self.waiting():
            principal = self.sessions[waiter.ask.session - 1].principal
            forbidden = [name for name in waiter.ask.names if not self.may(principal, Verb.ACQUIRE, name)]
            if forbidden:
                text = f"{principal!r} may not acquire {forbidden[0]!r}"
                self.end_wait(waiter, o.Refused(o.Code.DENIED, text))
                refused += 1
        self.hand_on()
        return o.PolicyChanged(policy.revision, len(gone), refused)

    def user(self, principal: str) -> User | None:
        """Who a principal is; while there is no policy everybody is somebody."""
        if not self.policy.revision:
            return User()
        user = self.policy.users.get(principal)
        return None if user is None or user.disabled else user

    def is_admin(self, policy: Policy, principal: str) -> bool:
        user = policy.users.get(principal)
        rules = [rule for role in (user.roles if user else ()) for rule in policy.roles[role].rules]
        return bool(user and not user.disabled) and any(Verb.ADMIN in rule.allow for rule in rules)

    def may(self, principal: str, verb: Verb, name: str) -> bool:
        return may(self.policy, principal, verb, name)

    def may_acquire(self, session: Session, names: Iterable[str]) -> bool:
        return all(self.may(session.principal, Verb.ACQUIRE, name) for name in names)

    def quota(self, principal: str) -> Quota:
        """That of the principal, else that of each."""
        quotas = {quota.principal: quota for quota in self.policy.quotas.values()}
        return quotas.get(principal) or quotas.get("*") or Quota()

    def exceeds(self, session: Session, ask: c.Acquire) -> bool:
        """Whether an enforced quota is exceeded by an acquire."""
        mine = {each.id for each in self.sessions if each.principal == session.principal}
        held, waiting = self.held(), self.waiting()
        awaited = [(name, waiter.ask.session) for waiter in waiting for name in waiter.ask.names]
        names = [(hold.name, hold.ask.session) for hold in held] + awaited
        for quota in self.bounding(session):
            prefix = quota.prefix or ""
            had = sum(name.startswith(prefix) and (quota.prefix is not None or who in mine) for name, who in names)
            asked = sum(name.startswith(prefix) for name in ask.names)
            if not asked:
                continue
            ttl_ms = ask.ttl_ms or session.ttl_ms
            too_long = bool(quota.wait_ms) and not 0 <= ask.wait_ms <= quota.wait_ms
            if (quota.holds and had + asked > quota.holds) or (quota.ttl_ms and ttl_ms > quota.ttl_ms) or too_long:
                return True
        return False

    def waits_too_often(self, session: Session, ask: c.Acquire) -> bool:
        """Whether an enforced quota of waiters is full."""
        mine = {each.id for each in self.sessions if each.principal == session.principal}
        for quota in self.bounding(session):
            prefix = quota.prefix or ""
            if quota.prefix is None:
                count = sum(waiter.ask.session in mine for waiter in self.waiting())
            else:
                count = sum(name.startswith(prefix) for waiter in self.waiting() for name in waiter.ask.names)
            if quota.waiters and any(name.startswith(prefix) for name in ask.names) and count >= quota.waiters:
                return True
        return False

    def bounding(self, session: Session) -> list[Quota]:
        quotas = [quota for quota in self.policy.quotas.values() if quota.prefix is not None]
        return [q for q in (self.quota(session.principal), *quotas) if q.mode is QuotaMode.ENFORCE]

    # How holds and waits begin and end

    def grant(self, ask: c.Acquire) -> o.Granted:
        self.fence += 1
        until_at = self.now_at + ask.ttl_ms if ask.ttl_ms else 0
        anchor = len(self.anchors)
        self.holds += [Hold(name, self.fence, self.now_at, until_at, ask, anchor) for name in ask.names]
        if isinstance(ask, c.AcquireAtLeast):
            until_at, meta = self.now_at + ask.at_least_ms, self.sessions[ask.session - 1].meta
            self.least += [Kept(name, self.fence, self.now_at, until_at, ask, meta, anchor) for name in ask.names]
        return o.Granted(ask.session, ask.request, ask.names, self.fence, self.now_at, ask.ttl_ms)

    def hand_on(self) -> None:
        """Grant the first waiter that can be granted, until there is none."""
        while (waiter := next(filter(self.is_next, self.waiting()), None)) is not None:
            self.end_wait(waiter, self.grant(waiter.ask))

    def is_next(self, waiter: Waiter) -> bool:
        return all(
            self.waiting(name)[0] is waiter and self.admits(name, waiter.ask.mode) and not self.arrives(name)
            for name in waiter.ask.names
        )

    def end_wait(self, waiter: Waiter, answer: o.Granted | o.TimedOut | o.Cancelled | o.Refused) -> None:
        waiter.gone = True
        ask = waiter.ask
        session = self.sessions[ask.session - 1]
        if ask.request:
            session.final.append((ask.request, answer))
        seen = (ask.names, ask.mode.value, self.now_at - waiter.since_at, ask.meta)
        self.tell(o.WaitEnded(waiter.ticket, ask.session, ask.request, ask.owner, answer, *seen))

    def end_hold(self, hold: Hold, ending: o.Ending) -> None:
        hold.ending = ending
        self.ended.append(hold)
        if ending not in (o.Ending.RELEASED, o.Ending.CLOSED) and hold.ask.lock_delay_ms:
            self.delays.append((hold.name, self.now_at + hold.ask.lock_delay_ms))

    def take_away(self, hold: Hold, ending: o.Ending, by: str = "") -> None:
        self.end_hold(hold, ending)
        delay_ms = 0 if ending is o.Ending.RELEASED else hold.ask.lock_delay_ms
        self.tell(o.HoldEnded(hold.ask.session, hold.ask.owner, hold.name, hold.fence, ending, by, delay_ms))

    def tell(self, notice: o.Notice) -> None:
        self.notices.append((self.index, notice))

    # Requests

    def once(self, session: Session, request: c.Request) -> Expected:
        number = request.request
        if number == 0:
            return self.fulfil(session, request)
        if request.answered > session.answered:
            session.answered = request.answered
            while session.direct and session.direct[0][0] <= session.answered:
                session.direct.pop(0)
        known = self.recall(session, number)
        session.latest = max(session.latest, number)
        if known is not None:
            self.repeated.append(self.index)
            return known
        if not self.has_room(session):
            return LIMIT
        answer = self.fulfil(session, request)
        if not isinstance(answer, o.Queued):
            session.direct.append((number, answer))
        return answer

    def recall(self, session: Session, number: int) -> Expected | None:
        """What is told to a request that was seen before."""
        for waiter in self.waiting(session=session.id):
            if waiter.ask.request == number:
                ahead = [sum(w.ticket < waiter.ticket for w in self.waiting(name)) for name in waiter.ask.names]
                return o.Queued(waiter.ticket, max(ahead))
        for known, answer in session.final + session.direct:
            if known == number:
                return answer
        return USAGE if number <= min(session.answered, session.latest) else None

    def has_room(self, session: Session) -> bool:
        return len(session.direct) + len(session.final) < self.limits.answers_per_session_max

    def fulfil(self, session: Session, request: c.Request) -> Expected:
        match request:
            case c.Acquire():
                return self.acquire(session, request)
            case c.Release():
                return self.release(session, request)
            case c.Extend():
                return self.extend(session, request)
            case c.Refuse():
                return request.answer

    def acquire(self, session: Session, ask: c.Acquire) -> Expected:
        if (elsewhere := self.not_here(ask)) is not None:
            return elsewhere
        if not self.may_acquire(session, ask.names):
            return DENIED
        codes = frozenset(self.objections(session, ask))
        if codes:
            return RefusedFor(codes)
        if self.exceeds(session, ask):
            return LIMIT
        taken = [name for name in ask.names if self.waiting(name) or not self.admits(name, ask.mode)]
        taken = taken or [name for name in ask.names if self.arrives(name)]
        if not taken:
            return self.grant(ask)
        if ask.wait_ms == 0:
            return o.Busy(taken[0])
        ahead = max(len(self.waiting(name)) for name in ask.names)
        if ahead >= self.limits.waiters_per_name_max:
            return QUEUE_FULL
        if self.waits_too_often(session, ask):
            return LIMIT
        until_at = self.now_at + ask.wait_ms if ask.wait_ms > 0 else 0
        waiter = Waiter(len(self.waiters) + 1, ask, self.now_at, until_at, len(self.anchors))
        self.waiters.append(waiter)
        circle = self.circle_through((ask.session, ask.owner))
        if circle is not None:
            self.waiters.remove(waiter)
            return circle
        return o.Queued(waiter.ticket, ahead)

    def objections(self, session: Session, ask: c.Acquire) -> Iterable[o.Code]:
        limits, names = self.limits, ask.names
        had = len(self.held(session=session.id)) + sum(len(w.ask.names) for w in self.waiting(session=session.id))
        if not 1 <= len(names) <= limits.names_per_request_max or had + len(names) > limits.holds_per_session_max:
            yield o.Code.LIMIT
        if any(not 1 <= len(name.encode()) <= limits.name_bytes_max for name in names):
            yield o.Code.LIMIT
        if len(ask.owner.encode()) > limits.owner_bytes_max or len(ask.meta.encode()) > limits.meta_bytes_max:
            yield o.Code.LIMIT
        if not -1 <= ask.wait_ms <= limits.wait_ms_max or not 0 <= ask.ttl_ms <= limits.ttl_ms_max:
            yield o.Code.USAGE
        if not 0 <= ask.lock_delay_ms <= limits.lock_delay_ms_max or len(set(names)) < len(names):
            yield o.Code.USAGE
        if ask.mode is c.Mode.PERMIT:
            users = [hold.ask for name in names for hold in self.held(name)]
            users += [waiter.ask for name in names for waiter in self.waiting(name)]
            others = {user.limit for user in users if user.limit}
            if not 1 <= ask.limit <= limits.permits_max or len(names) > 1 or others - {ask.limit}:
                yield o.Code.USAGE
        elif ask.limit:
            yield o.Code.USAGE
        if isinstance(ask, c.AcquireAtLeast):
            if not 1 <= ask.at_least_ms <= limits.ttl_ms_max or ask.mode is not c.Mode.EXCLUSIVE:
                yield o.Code.USAGE
            if len(self.kept()) + len(names) > self.kept_max:
                yield o.Code.LIMIT

    def cancel(self, session: Session, number: int) -> Expected:
        for waiter in self.waiting(session=session.id):
            if number and waiter.ask.request == number:
                self.end_wait(waiter, o.Cancelled(number))
                self.hand_on()
                return o.Cancelled(number)
        answers = session.final if number in dict(session.final) else session.direct
        answer = dict(answers).get(number)
        if number <= session.answered and answers is not session.final:
            return USAGE
        if isinstance(answer, o.Released | o.Extended):
            return USAGE
        if answer is None and not self.has_room(session):
            return LIMIT
        session.latest = max(session.latest, number)
        if answer is None:
            answers.append((number, o.Cancelled(number)))
        elif isinstance(answer, o.Granted):
            answers[answers.index((number, answer))] = (number, o.Cancelled(number))
            for kept in self.kept():
                # What is withdrawn was never granted.
                kept.ended = kept.ended or kept.fence == answer.fence
            for hold in self.held(fence=answer.fence):
                self.take_away(hold, o.Ending.RELEASED)
            self.hand_on()
        return o.Cancelled(number)

    def release(self, session: Session, command: c.Release) -> Expected:
        if not command.names:
            return LIMIT
        names = list(dict.fromkeys(command.names))
        for name in names:
            is_own = self.held(name, session.id, command.fence) or (command.fence, name) in self.lapsed(session.id)
            may_know = any(self.may(session.principal, verb, name) for verb in (Verb.ACQUIRE, Verb.OBSERVE))
            if not is_own and not may_know:
                return DENIED
        refused = [name for name in names if not self.held(name, session.id, command.fence)]
        for name in names:
            for hold in self.held(name, session.id, command.fence):
                self.end_hold(hold, o.Ending.RELEASED)
        reason = self.why_not(session, refused[0], command.fence) if refused else o.Reason.OK
        self.hand_on()
        return o.Released(reason, tuple(refused))

    def extend(self, session: Session, command: c.Extend) -> Expected:
        if not command.names:
            return LIMIT
        if not 0 <= command.ttl_ms <= self.limits.ttl_ms_max:
            return USAGE
        if not self.may_acquire(session, command.names):
            return DENIED
        for quota in self.bounding(session):
            touched = any(name.startswith(quota.prefix or "") for name in command.names)
            if touched and quota.ttl_ms and (command.ttl_ms or session.ttl_ms) > quota.ttl_ms:
                return LIMIT
        for name in command.names:
            if not self.held(name, session.id, command.fence):
                return o.Extended(self.why_not(session, name, command.fence))
        until_at = self.now_at + command.ttl_ms if command.ttl_ms else 0
        for name in command.names:
            for hold in self.held(name, session.id, command.fence):
                hold.until_at = until_at
        return o.Extended(o.Reason.OK, until_at)

    def why_not(self, session: Session, name: str, fence: int) -> o.Reason:
        if self.held(name, fence=fence) or not session.opened_fence < fence <= self.fence:
            return o.Reason.NOT_OWNER
        return o.Reason.EXPIRED if (fence, name) in self.lapsed(session.id) else o.Reason.ALREADY_RELEASED

    def break_holds(self, command: c.Break) -> Expected:
        if not self.may(getattr(command, "principal", ""), Verb.BREAK, command.name):
            return DENIED
        if len(command.by.encode()) > self.limits.meta_bytes_max:
            return LIMIT
        if self.arrives(command.name):
            return ARRIVING
        if self.home is not None and self.stage(key_slot(command.name.encode())) not in ("open", "closing"):
            return MOVED
        self.fence += 1
        fence = self.fence
        ended = [hold for hold in self.held(command.name) if hold.fence <= (command.fence or fence)]
        fences = [hold.fence for hold in ended]
        for kept in self.kept(command.name):
            kept.ended = kept.fence <= (command.fence or fence)
            fences += [kept.fence] if kept.ended and kept.fence not in fences else []
        for hold in ended:
            self.take_away(hold, o.Ending.BROKEN, command.by)
        self.hand_on()
        return o.Broken(command.name, fence, tuple(fences))

    # Deadlock

    def circle_through(self, start: Owner) -> Circle | None:
        """The shortest certain circle through this owner, who has just joined the queue; None if there is none."""
        edges = frozenset(edge for waiter in self.waiting() for edge in self.edges_from(waiter))
        reached = {head for tail, head, _ in edges if tail == start}
        for length in range(1, len(edges) + 1):
            if start in reached:
                return Circle(edges, length)
            reached |= {head for tail, head, _ in edges if tail in reached}
        return None

    def edges_from(self, waiter: Waiter) -> Iterable[Edge]:
        """Whom its owner certainly waits for. Nothing is certain of the unknown, or of who waits twice."""
        ask = waiter.ask
        me = (ask.session, ask.owner)
        mine = [w for w in self.waiting(session=ask.session) if w.ask.owner == ask.owner]
        if not ask.owner or len(mine) > 1:
            return
        for name in ask.names:
            holds = self.held(name)
            is_only = ask.limit == 1
            for hold in holds:
                # Among holds of its own mode, no one hold is in its way: there may be room, or any may come back;
                # but for the only permit there is.
                if hold.ask.owner and (is_only or not (hold.ask.mode is ask.mode is not c.Mode.EXCLUSIVE)):
                    link = o.Link(*me, name, hold.fence, hold.since_at)
                    yield me, (hold.ask.session, hold.ask.owner), link
            for other in self.waiting(name):
                if other.ticket < waiter.ticket and other.ask.owner:
                    yield me, (other.ask.session, other.ask.owner), o.Link(*me, name, 0, other.since_at)
