"""The checker: a history in, the guarantees it breaks out. Pure functions; nothing here knows how it came about.

Every grant has a fence, and fences order all grants, so nothing is searched for: a history is sorted and walked.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import merge
from itertools import groupby
from typing import NamedTuple

from fencehold.core.commands import Mode
from fencehold.core.machine import Machine
from fencehold.journal.codec import decode
from tests.simulation.answers import Answers
from tests.simulation.history import Ask, Held, History
from tests.simulation.moves import Moves
from tests.simulation.policies import Policies
from tests.simulation.readings import Readings
from tests.simulation.store import Stored
from tests.simulation.story import Grant, Story, Violation

EACH_MAX = 3
"""Violations told of each guarantee: the others say the same."""


class Judged(NamedTuple):
    """What came of a history."""

    violations: list[Violation]
    moves: int
    """How many times slots were moved."""
    struck: int
    """In the middle of how many of these something failed."""
    followed: int = 0
    """How many times a shard followed a policy of the first."""


def check(history: History) -> list[Violation]:
    """All that is wrong with it, the gravest first."""
    return judged(history).violations


def judged(history: History) -> Judged:
    """The same, and how many moves of slots there were."""
    shards = [_Shard(part) for part in history.parts()]
    stories = [shard.story for shard in shards]
    moves, policies = Moves(history, stories), Policies(stories)
    for at_ns, number, record in merge(*(shard.records(number) for number, shard in enumerate(shards))):
        if not shards[number].tell(record):
            break
        moves.look(at_ns, number)
        policies.look(at_ns, number)
    else:
        moves.end(history.closed_ns)
        policies.end(history.closed_ns)
    for shard in shards:
        shard.end()
    found = [
        *fences_grow(history),
        *moves.violations,
        *(wrong for story in stories for wrong in story.violations),
        *the_client_lets_go_first(history, *stories),
        *a_joint_hold_is_whole(history, *stories),
        *policies.violations,
        *(wrong for shard in shards for wrong in shard.violations()),
        *every_request_ends(history),
        *(wrong for shard in shards for wrong in shard.quiet.violations),
        *(wrong for shard in shards for wrong in nothing_is_left(shard.history, shard.story)),
        *(wrong for shard in shards for wrong in neighbours_are_unharmed(shard.history, shard.story)),
        *(wrong for shard in shards for wrong in shard.hashes.violations),
        *(Violation("code", 0, complaint) for complaint in history.complaints),
    ]
    return Judged(_few(found), moves.count, moves.struck, policies.followed)


class _Shard:
    """The journal of one shard, told entry by entry to all who want to see it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.story, self._readings = Story(), Readings(history.said)
        self.hashes, self.quiet = _Hashes(history), _Quiet(history)

    def records(self, number: int) -> Iterator[tuple[int, int, Stored]]:
        """When each was durable, which shard this is, and the entry."""
        # By the place in the list, too: no two entries are compared.
        return ((record.at_ns, number, record) for record in self.history.stored)

    def tell(self, record: Stored) -> bool:
        """The next entry; False if the machine cannot apply it."""
        story = self.story
        self._readings.before(record.at_ns, story.machine)
        self.quiet.before(record.at_ns, story)
        if not story.tell(record):
            return False
        self._readings.after(story.machine)
        self.hashes.look(record.at_ns, story.machine)
        return True

    def end(self) -> None:
        """No entry follows."""
        self._readings.end(self.story.machine)
        self.quiet.before(1 << 62, self.story)

    def violations(self) -> list[Violation]:
        """What is wrong with its time, answers and readings."""
        answers, readings = Answers(self.story, self.history.leads), self._readings
        return [
            *time_is_not_hurried(self.history),
            *(wrong for said in self.history.said if (wrong := answers.judge(said)) is not None),
            *(readings.violation(wrong, answers.is_sealed(wrong.node, wrong.at_ns)) for wrong in readings.wrong),
        ]


def _few(violations: list[Violation]) -> list[Violation]:
    counts: dict[str, int] = defaultdict(int)
    kept = []
    for violation in violations:
        counts[violation.guarantee] += 1
        if counts[violation.guarantee] <= EACH_MAX:
            kept.append(violation)
    return kept


# What clients saw.


def fences_grow(history: History) -> list[Violation]:
    """G1: no fence is seen twice, and who asked after another was granted gets a greater one.

    Where there are several shards this is so of each name; a fence says nothing of other names then.
    """
    granted = [ask for ask in history.asks if ask.outcome == "granted"]
    if not history.beside:
        return _fences_grow(granted)
    by_name: dict[str, list[Ask]] = defaultdict(list)
    for ask in granted:
        for name in ask.names:
            by_name[name].append(replace(ask, fence=ask.fence_of(name)) if ask.fences else ask)
    return [wrong for _, asks in sorted(by_name.items()) for wrong in _fences_grow(asks)]


def _fences_grow(granted: Iterable[Ask]) -> list[Violation]:
    found: list[Violation] = []
    returned = sorted(granted, key=lambda ask: ask.ended_ns)
    greatest = index = 0
    seen: set[int] = set()
    for ask in sorted(granted, key=lambda ask: ask.asked_ns):
        while index < len(returned) and returned[index].ended_ns < ask.asked_ns:
            greatest = max(greatest, returned[index].fence)
            index += 1
        if ask.fence in seen:
            found.append(
                Violation("G1", ask.ended_ns, f"fence {ask.fence} was granted twice, then to {ask.client}")
            )
        elif ask.fence <= greatest:
            what = f"{ask.client} asked for {ask.names} after {greatest} was granted, and got {ask.fence}"
            found.append(Violation("G1", ask.ended_ns, what))
        seen.add(ask.fence)
    return found


def the_client_lets_go_first(history: History, *stories: Story) -> list[Violation]:
    """G7: when a name is given away, nobody trusts a hold that this conflicts with; what was lost stays lost."""
    grants: dict[str, list[Grant]] = defaultdict(list)
    for grant in sorted((each for story in stories for each in story.grants.values()), key=_fence):
        for name in grant.granted.names:
            grants[name].append(grant)
    broken = set().union(*(story.broken for story in stories))
    found = [
        Violation("G7", held.relapsed_ns, f"{held.client} trusts fence {held.fence} again after it was lost")
        for held in history.holds
        if held.relapsed_ns >= 0
    ]
    trusting: dict[tuple[str, int], int] = defaultdict(int)
    for held in history.holds:
        for name in held.names:
            for grant in grants[name]:
                if grant.at_ns > held.trusted_ns:
                    break
                fence = held.fence_of(name)
                if grant.granted.fence <= fence or (name, fence) in broken:
                    continue
                trusting[name, grant.granted.fence] += 1
                if _conflicts(held.mode, grant, trusting[name, grant.granted.fence]):
                    what = (
                        f"{name} was given to session {grant.granted.session} with fence {grant.granted.fence} "
                        f"while {held.client} trusted fence {fence}, until {held.trusted_ns / 1e9:.6f}"
                    )
                    found.append(Violation("G7", grant.at_ns, what))
    return found


def a_joint_hold_is_whole(history: History, *stories: Story) -> list[Violation]:
    """G8: what is held in several shards was granted in each of them; who has lost a part of it has lost all."""
    found: list[Violation] = []
    for held in (each for each in history.holds if each.fences):
        for name in held.names:
            story = _granted_in(stories, held, name)
            if story is None:
                what = f"{held.client} holds {held.fences}, and was not granted {name}"
                found.append(Violation("G8", held.granted_ns, what))
                continue
            ended_ns = _end_of_trust(story, name, held.fence_of(name))
            if ended_ns <= held.trusted_ns:
                what = f"{held.client} trusts {held.fences} after it lost {name} with {held.fence_of(name)}"
                found.append(Violation("G8", ended_ns, what))
    return found


def _granted_in(stories: Iterable[Story], held: Held, name: str) -> Story | None:
    for story in stories:
        grant = story.grants.get(held.fence_of(name))
        if (
            grant is not None
            and name in grant.granted.names
            and grant.at_ns <= held.granted_ns
            and story.clients.get(grant.granted.session) == held.client
        ):
            return story
    return None


def _end_of_trust(story: Story, name: str, fence: int) -> int:
    """From when on nobody may trust a hold that ended other than by a release.

    One that ran out, from before it did; one that was broken or revoked, when its client must have heard of it:
    what was answered before keeps it trusted for a ttl, and who reconnects meanwhile asks, which may take another.
    """
    ended_ns = story.ended.get((name, fence), 1 << 62)
    if (name, fence) not in story.broken:
        return ended_ns
    return ended_ns + 2 * story.ttls_ns[story.grants[fence].granted.session]


def _fence(grant: Grant) -> int:
    return grant.granted.fence


def _conflicts(mode: Mode, grant: Grant, trusting: int) -> bool:
    if mode is Mode.EXCLUSIVE or grant.mode is not mode:
        return True
    return mode is Mode.PERMIT and trusting >= grant.limit


def every_request_ends(history: History) -> list[Violation]:
    """G9: in whatever way, soon after the last fault; the time is the run's to give."""
    found = [
        Violation("G9", ask.asked_ns, f"{ask.client} never heard of its asking for {ask.names}")
        for ask in history.asks
        if ask.ended_ns < 0 and not ask.orphaned
    ]
    if history.busy and not found:
        found.append(Violation("G9", history.healed_ns, f"{', '.join(history.busy)} did not come to an end"))
    if history.idle_ns >= 0 and history.closed_ns < 0:
        found.append(Violation("G9", history.idle_ns, "a client was not closed in time"))
    return found


# What was stored.


def time_is_not_hurried(history: History) -> list[Violation]:
    """G7: logical time never runs faster than the leader's clock, from the moment it leads."""
    found: list[Violation] = []
    leads = {led.epoch: led for led in history.leads}
    for epoch, records in groupby(history.stored, key=lambda record: record.epoch):
        led, told_ms = leads[epoch], 0
        for record in records:
            told_ms += decode(record.data).elapsed_ms
            passed_ms = (record.at_ns - led.at_ns) / 1e6 * history.rates.get(led.node, 1.0)
            if told_ms > passed_ms + 0.001:
                what = f"{led.node} told {told_ms} ms in epoch {epoch}, and {passed_ms:.3f} ms had passed"
                found.append(Violation("G7", record.at_ns, what))
                break
    return found


def nothing_is_left(history: History, story: Story) -> list[Violation]:
    """G6: when all clients are gone, so are their sessions, and what they held."""
    state = story.machine.state
    if history.closed_ns < 0 or not state.sessions:
        return []
    left = {session: story.clients.get(session, "") for session in state.sessions}
    if history.wild:
        # Frames with mistakes in them open sessions, too, which live as long as the mistake says.
        known = {*history.wild, *(ask.client for ask in history.asks)}
        left = {session: client for session, client in left.items() if client in known}
    if not left:
        return []
    return [Violation("G6", history.closed_ns, f"sessions that nobody has are still there: {left}")]


def neighbours_are_unharmed(history: History, story: Story) -> list[Violation]:
    """Where only a wild client is left to blame, nobody else loses a session, or a connection.

    Who comes back to a session that was over before has lost its connection before: a client that was refused, as
    its user was disabled for a while, does so when it is next used.
    """
    found = [(at_ns, session, "ran out") for session, at_ns in story.expired.items()]
    resumed = (said for said in history.said if said.words and said.words[0] == b"SESSION.RESUME")
    found += [
        (said.heard_ns, session, "had to be resumed")
        for said in resumed
        if story.over.get(session := int(said.words[1]), history.calm_ns) >= history.calm_ns
    ]
    return [
        Violation("neighbours", at_ns, f"session {session} of {story.clients[session]} {what}, and all was calm")
        for at_ns, session, what in found
        if history.calm_ns <= at_ns < history.calm_until_ns and story.clients.get(session) in history.living
    ]


class _Quiet:
    """G9: what was cancelled, given up or released is not held when its client has come to rest.

    By its newest session, that is: one that could not be told that it is over lives on for its ttl (G6 waits).
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._done = history.idle_ns < 0
        self.violations: list[Violation] = []

    def before(self, at_ns: int, story: Story) -> None:
        if self._done or at_ns <= self._history.resting_ns:
            return
        self._done = True
        newest = {client: session for session, client in sorted(story.clients.items())}
        for session in story.machine.state.sessions.values():
            client = story.clients.get(session.id, "")
            if client in self._history.living and session.id == newest[client] and session.size():
                names = [hold.name for hold in session.holds()] + [
                    w.ask.names[0] for w in session.waiters.values()
                ]
                what = f"{client} is at rest, yet session {session.id} holds or awaits {names}"
                self.violations.append(Violation("G9", self._history.resting_ns, what))


class _Hashes:
    """G12: a replica, and a snapshot, is at its position what the journal says it is."""

    def __init__(self, history: History) -> None:
        self.violations: list[Violation] = []
        self._expected: dict[int, list[tuple[str, str]]] = defaultdict(list)
        for replica in history.replicas:
            self._expected[replica.position].append((f"the replica of {replica.node}", replica.state_hash))
        for saved in history.snapshots:
            self._expected[saved.position].append((f"the snapshot by {saved.node}", saved.data[-32:].hex()))

    def look(self, at_ns: int, machine: Machine) -> None:
        expected = self._expected.get(machine.position)
        if expected is None:
            return
        state_hash = machine.state_hash()
        for whose, found in expected:
            if found != state_hash:
                what = f"{whose} at position {machine.position} is not what the journal makes"
                self.violations.append(Violation("G12", at_ns, what))
