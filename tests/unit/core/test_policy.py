"""Policies: what they allow, what outlives a restart, and that what was written before there were any is read."""

from base64 import b64decode

import pytest

from fencehold.core.commands import (
    Acquire,
    BreakAs,
    ChangePolicy,
    Entry,
    FollowPolicy,
    OpenSession,
    OpenSessionAs,
    OpenSessionBy,
)
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Code, Opened, Outcome, PolicyChanged, Refused
from fencehold.core.policy import (
    NO_POLICY,
    Policy,
    PolicyChange,
    Quota,
    Role,
    Rule,
    Token,
    User,
    Verb,
    changed,
    for_efficiency,
    token_id,
)
from fencehold.core.rulebook import REMEMBERED_MAX, SHORT, Rulebook
from fencehold.errors import SnapshotUnreadable
from fencehold.journal.codec import decode, encode

OLDER_SNAPSHOT = (
    "RkVOQ0VIT0xEAgAAADiZAQUDAAGdzQEAzIDNBABAzScQzQPozgABhqDNEADOAA9CQM4FJlwAziQMhADOADbugM0H0JCgoAAAAGKR"
    "k50BzXUwzQPooXOweyJjbGllbnQiOiJvbGQifQUAAgCQkpIBl6dncmFudGVkAQGRoWEBBQCSApenZ3JhbnRlZAECkaFiAgXNA4SQ"
    "kZICoWLNdTWRmqFhAaABBQChWAAAoAAAAAAAAAAdkZihYQEBoAXNIy2gsHsiY2xpZW50Ijoib2xkIn0AAAAAGcF3dUqpU62OzzZH"
    "uqY4tpGgWVTGibukYmWQ4Loo0e0="
)
"""A snapshot of version 2, as it was written before there were principals."""
OLDER_ENTRY = (
    "AZIFlJWkb3Blbs11MM0D6KFzsHsiY2xpZW50Ijoib2xkIn2dsGFjcXVpcmVfYXRfbGVhc3QBkaFhAQCgoVgA/wAAoM0jKJynYWNx"
    "dWlyZQGRoWICAKChWAD/zQOEAKCUpWJyZWFroWIAo29wcw=="
)
OLDER_HASH = "19c177754aa953ad8ecf3647baa638b691a05954c689bba4626590e0ba28d1ed"

RULED_SNAPSHOT = (
    "RkVOQ0VIT0xEAwAAANmbAQABAAGdzQEAzIDNBABAzScQzQPozgABhqDNEADOAA9CQM4FJlwAziQMhADOADbugM0H0JCgoJCEqHJl"
    "dmlzaW9uAaV1c2Vyc4KjYW5ugqVyb2xlc5Gkc29tZadzZWNyZXRzkKNzeXOCpXJvbGVzkaRyb290p3NlY3JldHORoWilcm9sZXOC"
    "pHJvb3SBpXJ1bGVzkYKlYWxsb3eRpWFkbWlupnByZWZpeKCkc29tZYGlcnVsZXORgqVhbGxvd5GnYWNxdWlyZaZwcmVmaXihYaZx"
    "dW90YXOAAAAAKJGTngHNIygAoKAAAAAAkJCQkKNhbm7NIyiRmqJhMQGgAQAAoVgAAKAAAAAAAAAAAPeIGARSq2ZEEIVHBr3i6hCG"
    "fO7/+k25RLa3XFCHHjY1"
)
"""A snapshot with a policy, as it was written before there were tokens in one."""
RULED_ENTRY = (
    "AZIAk5anb3Blbl9hc80jKACgoKNhbm6UpnBvbGljeQCCpXVzZXJzgqNzeXOCpXJvbGVzkaRyb290p3NlY3JldHORoWijYW5ugaVy"
    "b2xlc5Gkc29tZaVyb2xlc4Kkcm9vdIGlcnVsZXORgqVhbGxvd5GlYWRtaW6mcHJlZml4oKRzb21lgaVydWxlc5GCpWFsbG93kadh"
    "Y3F1aXJlpnByZWZpeKFhoJynYWNxdWlyZQGRomExAACgoVgA/wAAoA=="
)

ACQUIRE, OBSERVE, EVENTS = Verb.ACQUIRE, Verb.OBSERVE, Verb.EVENTS
ROOT = Role((Rule((Verb.ADMIN,), prefix=""),))


def policy(users: dict[str, User] | None = None, **roles: Role) -> Policy:
    """With an administrator."""
    made = changed(NO_POLICY, PolicyChange({"sys": User(("root",)), **(users or {})}, {"root": ROOT, **roles}))
    assert isinstance(made, Policy), made
    return made


def feed(machine: Machine, *commands: object) -> list[Outcome]:
    return machine.apply(machine.position + 1, Entry(0, commands)).outcomes  # type: ignore[arg-type]


def verbs(rules: tuple[Rule, ...], name: str) -> frozenset[Verb]:
    book = Rulebook(policy({"ann": User(("r",))}, r=Role(rules)))
    return book.rights_of("ann").on(name)


def test_the_most_specific_rule_decides() -> None:
    """An exact name beats every prefix, a longer prefix a shorter one, whatever the order they are written in."""
    rules = (
        Rule((ACQUIRE,), prefix=""),
        Rule((OBSERVE,), prefix="db:"),
        Rule((), prefix="db:secret:"),
        Rule((EVENTS,), name="db:secret:open"),
    )
    for order in (rules, rules[::-1]):
        assert verbs(order, "x") == verbs(order, "db") == {ACQUIRE}
        assert verbs(order, "db:") == verbs(order, "db:a") == verbs(order, "db:secret") == {OBSERVE}
        assert verbs(order, "db:secret:") == verbs(order, "db:secret:opener") == frozenset()
        assert verbs(order, "db:secret:open") == {EVENTS}


def test_an_exact_right_is_no_range() -> None:
    """A right on one name says nothing of names that come after it, or begin with it."""
    book = Rulebook(policy({"ann": User(("r",))}, r=Role((Rule((OBSERVE, EVENTS), name="db"),))))
    rights = book.rights_of("ann")
    assert rights.hears("db")
    assert not any(rights.sees(name) for name in ("db:", "db0", "dc", "", "d"))
    assert rights.may_somewhere(EVENTS, "d")
    assert not rights.may_somewhere(EVENTS, "db:")


def test_of_rules_equally_specific_the_verbs_add_up_unless_one_forbids() -> None:
    """Two roles on one prefix give both their verbs; a role that allows nothing there takes them all away."""
    one, two, none = Rule((ACQUIRE,), prefix="a"), Rule((OBSERVE,), prefix="a"), Rule((), prefix="a")
    assert verbs((one, two), "a1") == {ACQUIRE, OBSERVE}
    assert verbs((one, none, two), "a1") == frozenset()


def test_a_rule_of_one_tier_is_no_right_on_the_other() -> None:
    """The journal's machine reads past rules for efficiency, and the other is told of none for correctness."""
    rules = (
        Rule((ACQUIRE,), prefix="a", tier="efficiency"),
        Rule((OBSERVE,), prefix="b", tier="correctness"),
        Rule((EVENTS,), prefix="c"),
    )
    whole = policy({"ann": User(("r",), secrets=("h",))}, r=Role(rules))
    here, there = (Rulebook(each).rights_of("ann") for each in (whole, for_efficiency(whole)))
    assert [here.on(name) for name in "abc"] == [frozenset(), {OBSERVE}, {EVENTS}]
    assert [there.on(name) for name in "abc"] == [{ACQUIRE}, frozenset(), {EVENTS}]
    assert for_efficiency(whole).users["ann"].secrets == ()


def test_what_is_remembered_is_bounded() -> None:
    """Names that are asked for in vain fill no memory; where rules are few, nothing is remembered at all."""
    for lengths in (1, SHORT, SHORT + 1):
        rules = tuple(Rule((ACQUIRE,), prefix="a" * length) for length in range(1, lengths + 1))
        book = Rulebook(policy({"ann": User(("r",))}, r=Role(rules)))
        rights = book.rights_of("ann")
        for number in range(REMEMBERED_MAX + 10):
            rights.on(f"n{number}")
        assert (book.remembered > 0) is (lengths > SHORT)
        assert book.remembered <= REMEMBERED_MAX
        assert len(rights._remembered) <= REMEMBERED_MAX


@pytest.mark.parametrize("lengths", range(1, SHORT + 3))
def test_the_most_specific_rule_decides_however_many_there_are(lengths: int) -> None:
    """Few rules are looked at, many remembered: what they say is the same, to the last letter of a prefix."""
    rules = [Rule((ACQUIRE,) if length % 2 else (), prefix="a" * length) for length in range(1, lengths + 1)]
    rights = Rulebook(policy({"ann": User(("r",))}, r=Role((*rules, Rule((OBSERVE,), "aab"))))).rights_of("ann")
    for _ in range(2):
        assert rights.on("aab") == {OBSERVE}
        assert rights.on("b") == rights.on("") == frozenset()
        for length in range(1, lengths + 2):
            longest = min(length, lengths)
            assert rights.on("a" * length) == ({ACQUIRE} if longest % 2 else frozenset())


def test_a_bound_tells_of_rules_and_never_of_names() -> None:
    """From a name that may not be seen a list jumps to where a rule begins, or ends."""
    rules = (Rule((OBSERVE,), prefix="b"), Rule((), prefix="bb"), Rule((OBSERVE,), name="d"))
    rights = Rulebook(policy({"ann": User(("r",))}, r=Role(rules))).rights_of("ann")
    assert "a0" < rights.next_bound("a0") < "b"
    assert "bb7" < rights.next_bound("bb7") < "bc"
    assert "c" < rights.next_bound("c") < "d"
    assert rights.next_bound("e") == ""


def test_a_change_keeps_the_secrets_it_does_not_name() -> None:
    """A user's roles can be changed by one who never sees its hashes."""
    before = policy({"ann": User(("root",), secrets=("hash",))})
    after = changed(before, PolicyChange({"ann": User(("root",), disabled=True)}))
    assert isinstance(after, Policy)
    assert after.users["ann"] == User(("root",), True, ("hash",))
    assert after.revision == before.revision + 1


@pytest.mark.parametrize(
    "change",
    [
        PolicyChange({"": User()}),
        PolicyChange({"a\r\nb": User()}),
        PolicyChange({"x" * 300: User()}),
        PolicyChange({"a*": User(secrets=("h",))}),
        PolicyChange({"a": User(secrets=("h" * 600,))}),
        PolicyChange({"a": User(("none",))}),
        PolicyChange(roles={"r": Role((Rule((ACQUIRE,)),))}),
        PolicyChange(roles={"r": Role((Rule((ACQUIRE,), "a", "a"),))}),
        PolicyChange(roles={"r": Role((Rule((ACQUIRE,), ""),))}),
        PolicyChange(roles={"r": Role((Rule((Verb.ADMIN,), prefix="a"),))}),
        PolicyChange(quotas={"q": Quota(holds=1)}),
        PolicyChange(quotas={"q": Quota("a", "b", holds=1)}),
        PolicyChange(quotas={"q": Quota("a", holds=-1)}),
    ],
    ids=repr,
)
def test_what_is_no_policy_is_refused(change: PolicyChange) -> None:
    """Whatever is wrong with a change, nothing of it happens."""
    refused = changed(policy(), change)
    assert isinstance(refused, Refused)
    assert refused.code is Code.USAGE


@pytest.mark.guarantee("G12")
@pytest.mark.guarantee("G13")
def test_a_policy_and_whose_a_session_is_outlive_a_restart() -> None:
    """Restored from a snapshot, or fed the same bytes, a machine allows and forbids the same."""
    machine, replica = Machine(), Machine()
    change = PolicyChange(
        {"sys": User(("root",), secrets=("h",)), "ann": User(("some",))},
        {"root": ROOT, "some": Role((Rule((ACQUIRE,), prefix="a"),))},
        {"q": Quota("ann", holds=2)},
    )
    entries = (
        Entry(0, (OpenSession(9_000), OpenSessionAs(9_000, principal="ann"), ChangePolicy(0, change))),
        Entry(5, (Acquire(2, ("a1",)), Acquire(2, ("b",)), BreakAs("a1", principal="ann"))),
    )
    for position, entry in enumerate(entries, 1):
        outcomes = machine.apply(position, entry).outcomes
        assert replica.apply(position, decode(encode(entry))).outcomes == outcomes
    data = b"".join(machine.snapshot())
    restored = Machine.restore(data)
    assert b"".join(restored.snapshot()) == data
    assert restored.state_hash() == machine.state_hash() == replica.state_hash()
    assert restored.state.sessions[2].principal == "ann"
    assert restored.state.policy == machine.state.policy
    again = [feed(each, Acquire(2, ("b",)), Acquire(2, ("a2", "a3"))) for each in (machine, restored)]
    assert again[0] == again[1]
    assert [outcome.code for outcome in again[0]] == [Code.DENIED, Code.LIMIT]  # type: ignore[union-attr]
    with pytest.raises(SnapshotUnreadable):
        Machine.restore(data[:-1])


def test_whose_a_session_is_outlives_a_restart_without_a_policy() -> None:
    """A session that was opened as somebody before the first policy is not ended by it, after a restart either."""
    machine = Machine()
    feed(machine, OpenSessionAs(9_000, principal="ann"), OpenSession(9_000))
    restored = Machine.restore(b"".join(machine.snapshot()))
    change = PolicyChange({"sys": User(("root",)), "ann": User()}, {"root": ROOT})
    assert feed(restored, ChangePolicy(0, change)) == [PolicyChanged(1, 1, 0)]
    assert list(restored.state.sessions) == [1]


@pytest.mark.guarantee("G12")
def test_what_was_written_before_there_were_policies_is_read_and_written_the_same() -> None:
    """Entries and snapshots of the older format lead to the same state, and to the same bytes."""
    machine = Machine.restore(b64decode(OLDER_SNAPSHOT))
    assert b"".join(machine.snapshot()) == b64decode(OLDER_SNAPSHOT)
    replayed = Machine()
    replayed.apply(1, decode(b64decode(OLDER_ENTRY)))
    assert encode(decode(b64decode(OLDER_ENTRY))) == b64decode(OLDER_ENTRY)
    assert replayed.state_hash() == machine.state_hash() == OLDER_HASH
    assert machine.state.policy is NO_POLICY or machine.state.policy == NO_POLICY
    assert machine.state.rulebook is None
    assert feed(machine, OpenSession(9_000)) == [Opened(2, 5, 9_000, 0)]


@pytest.mark.guarantee("G12")
def test_a_policy_of_before_there_were_tokens_has_the_same_bytes() -> None:
    """In a snapshot and in an entry, read and written."""
    machine, replayed = Machine.restore(b64decode(RULED_SNAPSHOT)), Machine()
    assert b"".join(machine.snapshot()) == b64decode(RULED_SNAPSHOT)
    replayed.apply(1, decode(b64decode(RULED_ENTRY)))
    assert encode(decode(b64decode(RULED_ENTRY))) == b64decode(RULED_ENTRY)
    assert replayed.state_hash() == machine.state_hash()


@pytest.mark.guarantee("G13")
def test_a_token_that_was_revoked_ends_what_it_opened_on_every_replica() -> None:
    """In the same entry; restored from a snapshot, or fed the same bytes; in the tier without a journal, too."""
    kept = Token("ab" * 32, 1, 2)
    key, machine, replica = token_id(kept.digest), Machine(), Machine()
    first = PolicyChange({"sys": User(("root",)), "ci": User()}, {"root": ROOT}, tokens={"ci": {key: kept}})
    opening = OpenSessionBy(9_000, principal="ci", token=key)
    entry = Entry(0, (ChangePolicy(0, first), opening, OpenSessionAs(9_000, principal="ci")))
    outcomes = machine.apply(1, entry).outcomes
    assert replica.apply(1, decode(encode(entry))).outcomes == outcomes
    restored = Machine.restore(b"".join(machine.snapshot()))
    assert restored.state.sessions[1].token == key
    assert restored.state_hash() == machine.state_hash() == replica.state_hash()
    beside = Machine()
    feed(beside, FollowPolicy(for_efficiency(machine.state.policy)), opening)
    revoke = ChangePolicy(1, PolicyChange(tokens={"ci": {key: None}}), "sys")
    for each in (machine, replica, restored):
        assert feed(each, revoke) == [PolicyChanged(2, 1, 0)]
        assert list(each.state.sessions) == [2]
        assert each.state.policy.users["ci"].tokens is None
        (refused,) = feed(each, opening)
        assert isinstance(refused, Refused)
        assert "revoked" in refused.detail
    assert feed(beside, FollowPolicy(for_efficiency(machine.state.policy))) == [PolicyChanged(2, 1, 0)]


@pytest.mark.parametrize(
    "token",
    [Token("ab"), Token("AB" * 32), Token("zz" * 32), Token("cd" * 32), Token("ab" * 32, -1)],
    ids=["short", "capitals", "no digits", "another's id", "before time"],
)
def test_what_is_no_hash_of_a_token_is_refused(token: Token) -> None:
    """Nothing is kept that could not be one."""
    change = PolicyChange({"sys": User(("root",))}, {"root": ROOT}, tokens={"sys": {("ab" * 32)[:16]: token}})
    assert isinstance(changed(NO_POLICY, change), Refused)


def test_the_other_tier_follows_a_policy_whole() -> None:
    """What it is told replaces what it had, and ends what that does not allow."""
    machine = Machine()
    feed(machine, OpenSessionAs(9_000, principal="ann"), OpenSessionAs(9_000, principal="eve"))
    assert feed(machine, FollowPolicy(for_efficiency(policy({"ann": User()})))) == [PolicyChanged(1, 1, 0)]
    assert feed(machine, FollowPolicy(NO_POLICY)) == [PolicyChanged(0, 0, 0)]
    assert machine.state.rulebook is None
