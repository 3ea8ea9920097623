"""Every command × every role × every kind of name: allowed is exactly what the policy says.

The cases are made from the table that the door dispatches by, so a new command is among them from its first day.
What is expected is worked out here by itself, from the roles as they are written down below.
"""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest

from fencehold.security.rights import NEEDS, About
from tests.unit.doors.box import Box, Client, Failed, as_map, serve
from tests.unit.doors.policies import as_somebody, change, rules

VERBS = ("acquire", "observe", "break", "events", "admin")

ROLES: dict[str, dict[str, str]] = {
    "nothing": {},
    "team": {"own:": "acquire observe events"},
    "blind": {"own:": "acquire"},
    "onlooker": {"": "observe"},
    "listener": {"": "observe events"},
    "deaf": {"": "events"},
    "breaker": {"own:": "break", "foreign:x=": "break"},
    "but": {"": "acquire observe break events", "own:secret:": "", "own:a=": "observe"},
    "exact": {"own:a=": "acquire observe break events"},
    "admin": {"": "admin"},
    "all": {"": "acquire observe break events admin"},
}
"""By name: verbs by prefix; one that ends with = is an exact name."""

NAMES = ("own:a", "own:b", "own:ab", "own:secret:k", "own:", "own", "foreign:x", "foreign:xy", "\u00e9:1")


def allowed(role: str, verb: str, name: str) -> bool:
    """What the roles above say, by a look at all of them."""
    exact = ROLES[role].get(name + "=")
    if exact is not None:
        return verb in exact.split()
    prefixes = [each for each in ROLES[role] if not each.endswith("=") and name.startswith(each)]
    return bool(prefixes) and verb in ROLES[role][max(prefixes, key=len)].split()


def policy() -> dict[str, Any]:
    roles = {
        role: {
            "rules": [
                {**({"name": key[:-1]} if key.endswith("=") else {"prefix": key}), "allow": verbs.split()}
                for key, verbs in table.items()
            ]
        }
        for role, table in ROLES.items()
    }
    users: dict[str, Any] = {f"u-{role}": {"roles": [role]} for role in ROLES}
    return {"users": {**users, "holder": {"roles": ["all"]}}, "roles": roles}


class Case(NamedTuple):
    """What is said, and about which names."""

    command: str
    words: tuple[Any, ...]
    names: tuple[str, ...]


def cases() -> Iterator[Case]:
    """Every command there is, on every kind of name, alone and in company."""
    pairs = [(one, other) for one, other in product(NAMES, NAMES) if one != other]
    for name in NAMES:
        yield Case("LOCK.ACQUIRE", (name, "WAIT", 0), (name,))
        yield Case("LOCK.ACQUIRE", (name, "WAIT", 0, "MODE", "S"), (name,))
        yield Case("LOCK.ACQUIRE", (name, "WAIT", 0, "LIMIT", 3), (name,))
        yield Case("LOCK.ACQUIRE", (name, "WAIT", 0, "ATLEAST", 1), (name,))
        yield Case("LOCK.EXTEND", (name, 1, 5_000), (name,))
        yield Case("LOCK.BREAK", (name, "FENCE", 1), (name,))
        yield Case("LOCK.INFO", (name,), (name,))
        yield Case("LOCK.INFO", (name, "STALE"), (name,))
        yield Case("LOCK.HISTORY", (name,), (name,))
    for one, other in pairs:
        yield Case("LOCK.MACQUIRE", (2, one, other, "WAIT", 0), (one, other))
        yield Case("LOCK.MEXTEND", (2, one, other, 1, 5_000), (one, other))
    for command, need in NEEDS.items():
        if need.about is About.SERVICE:
            yield Case(command, ARGUMENTS.get(command, ()), ())


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "NODE.FOLLOW": ("n", "a:1", 1),
    "NODE.BACKUP": ("END",),
    "POLICY.APPLY": (0, "{}"),
}
COVERED = {case.command for case in cases()}


def test_every_command_that_needs_a_verb_has_cases() -> None:
    """What shows or touches something is asked for below, in this test or in one of its own."""
    of_their_own = {"LOCK.LIST", "LOCK.WATCH", "METRICS", "SESSION.LIST"}
    assert {command for command, need in NEEDS.items() if need.verb is not None} == COVERED | of_their_own


async def told(client: Client) -> str:
    """The next reply: the code of a refusal, or nothing."""
    try:
        await client.reply()
    except Failed as failed:
        return failed.code
    return ""


@pytest.mark.guarantee("G13")
@pytest.mark.parametrize("tier", ["CORRECTNESS", "EFFICIENCY"])
def test_allowed_is_exactly_what_the_policy_says(tier: str) -> None:
    """Each command, by each role, on each kind of name: refused as DENIED if and only if a right is missing."""
    asked = 0

    async def scenario(box: Box) -> None:
        nonlocal asked
        await change(box, await box.client(3), **policy())
        for role in ROLES:
            client = await as_somebody(box, f"u-{role}")
            await client.call("TIER", tier)
            await client.call("SESSION.OPEN", "TTL", 60_000)
            for case in cases():
                client.send(case.command, *case.words)
            for case in cases():
                verb = NEEDS[case.command].verb
                assert verb is not None
                is_allowed = all(allowed(role, verb.value, name) for name in case.names or ("",))
                code = await told(client)
                assert (code == "DENIED") is (not is_allowed), (role, case, code)
                asked += 1
            await client.call("SESSION.CLOSE")
            await client.close()

    serve(scenario)
    assert asked > 2_000


def test_lists_show_exactly_what_may_be_seen() -> None:
    """LOCK.LIST tells each principal its names, page by page, and neither a cursor nor a count tells of others."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **policy())
        holder = await as_somebody(box, "holder", session=60_000)
        for name in NAMES:
            await holder.call("LOCK.ACQUIRE", name)
        for role, prefix, count in product(ROLES, ("", "own", "own:", "foreign:", "z"), (1, 2, 100)):
            client = await as_somebody(box, f"u-{role}")
            listed, cursor = [], ""
            for _ in range(100):
                cursor, items = await client.call("LOCK.LIST", "PREFIX", prefix, "CURSOR", cursor, "COUNT", count)
                listed += [as_map(item)["name"] for item in items]
                assert cursor not in NAMES or allowed(role, "observe", cursor), (role, cursor)
                if not cursor:
                    break
            expected = [
                name for name in sorted(NAMES) if name.startswith(prefix) and allowed(role, "observe", name)
            ]
            assert listed == expected, (role, prefix, count)
            await client.close()

    serve(scenario)


def test_sessions_are_listed_to_who_may_see_everything_and_to_their_own() -> None:
    """SESSION.LIST tells the rest of nobody."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **policy())
        clients = {role: await as_somebody(box, f"u-{role}", session=60_000) for role in ROLES}
        for role, client in clients.items():
            for count in (1, 100):
                listed, cursor = [], 0
                while True:
                    cursor, items = await client.call("SESSION.LIST", "CURSOR", cursor, "COUNT", count)
                    listed += [as_map(item)["principal"] for item in items]
                    if not cursor:
                        break
                everybody = [f"u-{each}" for each in ROLES]
                assert listed == (everybody if allowed(role, "observe", "\0") else [f"u-{role}"]), (role, count)

    serve(scenario)


def test_figures_are_for_those_who_may_see_everything() -> None:
    """METRICS tells of no name, but of how much there is of everything."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **policy())
        for role in ROLES:
            client = await as_somebody(box, f"u-{role}")
            if allowed(role, "observe", "\0") or allowed(role, "admin", ""):
                figures = json.loads(await client.call("METRICS"))["looked_up"]
                assert figures["fencehold_leader"] == [[["0"], 1]]
            else:
                assert await client.refusal("METRICS") == "DENIED", role
            await client.close()

    serve(scenario)


def test_who_has_not_said_who_it_is_may_say_so_and_nothing_else() -> None:
    """NOAUTH to everything that is about more than the connection itself; and so to one who is no user."""

    async def scenario(box: Box) -> None:
        nobody, stranger = await box.client(3), await as_somebody(box, "stranger")
        await change(box, nobody, **policy())
        for command, need in NEEDS.items():
            if need.about is not About.CONNECTION:
                assert await nobody.refusal(command) == "NOAUTH", command
                assert await stranger.refusal(command) == "NOAUTH", command
        assert await nobody.call("PING") == "PONG"
        assert (await nobody.map("WHOAMI"))["known"] == 0

    serve(scenario)


def test_watching_tells_only_of_what_may_be_heard() -> None:
    """Events come for names with both events and observe; of several names, for those; and a watch needs some."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **policy())
        watchers = {}
        for role in ROLES:
            client = await as_somebody(box, f"u-{role}")
            may = any(allowed(role, "events", name) for name in (*NAMES, "own:z"))
            client.send("LOCK.WATCH", "")
            assert await told(client) == ("" if may else "DENIED"), role
            if may:
                watchers[role] = client
        holder = await as_somebody(box, "holder", session=60_000)
        for name in NAMES:
            await holder.call("LOCK.ACQUIRE", name)
        await holder.call("LOCK.MACQUIRE", 3, "own:c", "own:secret:c", "foreign:c")
        for role, client in watchers.items():
            hears = [n for n in NAMES if allowed(role, "events", n) and allowed(role, "observe", n)]
            several = ["own:c", "own:secret:c", "foreign:c"]
            several = [n for n in several if allowed(role, "events", n) and allowed(role, "observe", n)]
            heard: list[Any] = []
            while len(heard) < len(hears) + bool(several):
                event = (await client.push())[1]
                if event["kind"] == "acquired":
                    heard.append(event["names"])
            assert heard == [[name] for name in hears] + ([several] if several else []), role
            await client.no_push()

    serve(scenario)


def test_a_watch_of_an_exact_name_is_no_range() -> None:
    """A right to the events of one name lets nobody watch, or hear, what comes after it."""

    async def scenario(box: Box) -> None:
        await change(
            box,
            await box.client(3),
            users={"sys": {"roles": ["root"]}, "ann": {"roles": ["one"]}},
            roles={"root": rules(all="admin acquire"), "one": rules(db_="events observe")},
        )
        client = await as_somebody(box, "ann")
        assert await client.refusal("LOCK.WATCH", "db:") == "DENIED"
        assert await client.refusal("LOCK.WATCH", "dc") == "DENIED"
        await client.call("LOCK.WATCH", "d")
        other = await as_somebody(box, "sys", session=9_000)
        for name in ("da", "db", "db:", "dc"):
            await other.call("LOCK.ACQUIRE", name)
        assert (await client.push())[1]["names"] == ["db"]
        await client.no_push()

    serve(scenario)


def test_a_right_to_hear_that_is_taken_away_ends_what_is_heard_at_once() -> None:
    """What happened under the old policy and was not told yet is told by the new one."""

    async def scenario(box: Box) -> None:
        admin = await box.client(3)
        await change(box, admin, **policy())
        admin = await as_somebody(box, "u-all", session=60_000)
        client = await as_somebody(box, "u-listener")
        await client.call("LOCK.WATCH", "own:")
        await admin.call("LOCK.ACQUIRE", "own:a")
        assert (await client.push())[1]["names"] == ["own:a"]
        # In one go, so that what happened is gathered and the policy changes before it is told.
        admin.send("LOCK.ACQUIRE", "own:b")
        admin.send("POLICY.APPLY", 1, json.dumps({"users": {"u-listener": {"roles": ["onlooker"]}}}))
        admin.send("LOCK.ACQUIRE", "own:c")
        for _ in range(3):
            await admin.reply()
        # One name is given back: what is heard of it shows that all before it has been told, or not.
        back = {
            "users": {"u-listener": {"roles": ["one"]}},
            "roles": {"one": rules(**{"own:ab_": "observe events"})},
        }
        await admin.call("POLICY.APPLY", 2, json.dumps(back))
        await admin.call("LOCK.ACQUIRE", "own:ab")
        heard = []
        while ["own:ab"] not in heard:
            heard.append((await client.push())[1]["names"])
        assert heard in ([["own:ab"]], [["own:b"], ["own:ab"]])

    serve(scenario)


def test_a_deadlock_is_told_without_what_may_not_be_seen() -> None:
    """Who holds the other name of a circle is told to who may observe it."""

    async def scenario(box: Box) -> None:
        await change(
            box,
            await box.client(3),
            users={"sys": {"roles": ["root"]}, "ann": {"roles": ["some"]}, "bob": {"roles": ["root"]}},
            roles={
                "root": rules(all="admin acquire observe"),
                "some": rules(all="acquire", own="acquire observe"),
            },
        )
        for who, sees in (("ann", False), ("bob", True)):
            other = await as_somebody(box, "sys", session=60_000)
            client = await as_somebody(box, who, session=60_000)
            await other.call("LOCK.ACQUIRE", "secret", "OWNER", "t9")
            await client.call("LOCK.ACQUIRE", "own", "OWNER", "me")
            other.send("LOCK.ACQUIRE", "own", "OWNER", "t9", "WAIT", 60_000)
            await box.waiting(1)
            failed = await client.failure("LOCK.ACQUIRE", "secret", "OWNER", "me", "WAIT", 60_000)
            assert failed.code == "DEADLOCK"
            circle = json.loads(failed.detail)["circle"]
            mine, others = circle
            assert (mine["owner"], mine["name"]) == ("me", "secret")
            assert (mine["fence"] > 0) is sees
            assert (others["owner"], others["session"] > 0) == (("t9", True) if sees else ("", False))
            await client.call("SESSION.CLOSE")
            assert as_map(await other.reply())["name"] == "own"
            await other.call("SESSION.CLOSE")

    serve(scenario)
