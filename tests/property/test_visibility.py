"""What reaches a principal is what it may see, by events, lists, explanations and errors, as the policy changes.

Hypothesis makes up who asks for what, who looks at what and how the policy changes under them. All goes over the
door, byte by byte. Every name that comes back to somebody must be one that this principal could see at some moment
since it asked; what it never could see must never come back, in whatever place.
"""

import asyncio
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fencehold.core.policy import Policy, Role, Rule, User, Verb
from fencehold.doors.resp import pages
from fencehold.doors.resp.broadcast import Broadcast
from tests.depth import deep
from tests.property.model import may
from tests.unit.doors.box import Box, Client, Failed, serve
from tests.unit.doors.policies import as_somebody
from tests.unit.node.doubles import until

EXAMPLES = int(os.environ.get("FENCEHOLD_EXAMPLES", deep("40", "200")))
NAMES = ("aa", "ab", "ba", "bb", "c")
PREFIXES = ("", "a", "aa", "b", "c")
PRINCIPALS = ("ann", "bob")
SEEN, HEARD = ("observe",), ("observe", "events")

rules = st.lists(
    st.tuples(
        st.sampled_from([*((name, True) for name in NAMES), *((prefix, False) for prefix in PREFIXES)]),
        st.sampled_from([(), ("acquire",), SEEN, HEARD, ("events",), ("acquire", *HEARD)]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each[0],
)
policies = st.tuples(rules, rules)
steps = st.one_of(
    st.tuples(st.just("policy"), policies),
    st.tuples(st.just("acquire"), st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)),
    st.tuples(st.just("release"), st.just(None)),
    st.tuples(st.just("list"), st.sampled_from(PREFIXES)),
    st.tuples(st.just("info"), st.sampled_from(NAMES)),
    st.tuples(st.just("try"), st.sampled_from(NAMES)),
    st.tuples(st.just("watch"), st.sampled_from(PREFIXES)),
)


QUESTIONS: dict[str, tuple[Any, ...]] = {
    "list": ("LOCK.LIST", "PREFIX", ..., "HOLD"),
    "info": ("LOCK.INFO", ...),
    "try": ("LOCK.ACQUIRE", ..., "WAIT", 0),
    "watch": ("LOCK.WATCH", ...),
}


BEGINNING: tuple[tuple[str, Any], ...] = (("watch", ""), ("acquire", ["aa", "bb"]), ("list", ""), ("info", "aa"))
"""Of every story: something is held, and looked at, before anything else happens."""


def plain(made: Any) -> dict[str, Any]:
    return {
        "rules": [
            {("name" if is_exact else "prefix"): text, "allow": list(allow)} for (text, is_exact), allow in made
        ]
    }


def modelled(revision: int, pair: Any) -> Policy:
    """The same policy, for the model to judge by."""
    roles = {
        who: Role(
            tuple(
                Rule(tuple(map(Verb, allow)), *((text, None) if is_exact else (None, text)))
                for (text, is_exact), allow in made
            )
        )
        for who, made in zip(PRINCIPALS, pair, strict=True)
    }
    return Policy(revision, {who: User((who,)) for who in PRINCIPALS}, roles)


def names_in(thing: Any) -> set[str]:
    """Every name that stands anywhere in what somebody was told, also inside of texts."""
    text = json.dumps(thing, default=str) if not isinstance(thing, str) else thing
    words = set("".join(letter if letter.isalnum() else " " for letter in text).split())
    return words & set(NAMES)


class Watched:
    """One principal's connection that looks on, and which names it ever could see since when."""

    def __init__(self, who: str, client: Client) -> None:
        self.who, self.client = who, client
        self.seen: set[str] = set()
        """Names that it could observe at some moment since it was last told something."""
        self.heard: set[str] = set()

    def allow(self, policy: Policy, *, anew: bool) -> None:
        could = {name for name in NAMES if may(policy, self.who, Verb.OBSERVE, name)}
        hears = {name for name in could if may(policy, self.who, Verb.EVENTS, name)}
        self.seen = could if anew else self.seen | could
        self.heard = hears if anew else self.heard | hears

    async def ask(self, *words: str | int) -> None:
        asked = names_in([str(word) for word in words])
        self.client.send(*words)
        try:
            told: Any = await self.client.reply()
        except Failed as failed:
            told = str(failed)
        assert names_in(told) <= self.seen | asked, (self.who, words, told)
        if words[0] == "LOCK.INFO" and words[1] not in self.seen:
            assert isinstance(told, str)
            assert told.startswith("DENIED")

    async def listen(self) -> None:
        """All that was pushed: a reply behind it shows that there is no more, but for what is gathered still."""
        for _ in range(3):
            await asyncio.sleep(0.003)
            await self.client.call("PING")
        while self.client._pushes:
            push = await self.client.push()
            if push[0] == "event":
                assert names_in(push) <= self.heard, (self.who, push)


async def played(box: Box, first: Any, story: list[Any]) -> None:
    """One story, after which nothing of it is left."""
    root = await as_somebody(box, "root", session=60_000)
    clients = [await as_somebody(box, who, session=None) for who in PRINCIPALS]
    try:
        await told(root, clients, first, story)
    finally:
        await root.call("SESSION.CLOSE")
        for client in (root, *clients):
            await client.close()
        await until(lambda: not box.server.door.connections and not box.state.sessions)


async def told(root: Client, clients: list[Client], first: Any, story: list[Any]) -> None:
    everything = {"rules": [{"prefix": "", "allow": ["acquire", "observe", "events", "admin", "break"]}]}
    users = {"root": {"roles": ["root"]}, **{who: {"roles": [who]} for who in PRINCIPALS}}
    roles = {"root": everything, **{w: plain(made) for w, made in zip(PRINCIPALS, first, strict=True)}}
    revision = int((await root.map("WHOAMI"))["revision"])
    await root.map("POLICY.APPLY", revision, json.dumps({"users": users, "roles": roles}))
    # The session that was opened before there was a policy is the principal's own, and goes on.
    policy = modelled(1, first)
    watched = [Watched(who, client) for who, client in zip(PRINCIPALS, clients, strict=True)]
    for each in watched:
        each.allow(policy, anew=True)
    held: list[tuple[str, int]] = []
    for verb, what in [*BEGINNING, *story]:
        for each in watched if verb in QUESTIONS else ():
            await each.ask(*(what if word is ... else word for word in QUESTIONS[verb]))
        if verb == "acquire":
            reply = await root.call("LOCK.MACQUIRE", len(what), *what, "WAIT", 0)
            held += [(name, reply["fence"]) for name in what] if reply else []
        elif verb == "release" and held:
            await root.call("LOCK.RELEASE", *held.pop())
        elif verb == "policy":
            policy = modelled(policy.revision + 1, what)
            for each in watched:
                each.allow(policy, anew=False)
            changed = {who: plain(made) for who, made in zip(PRINCIPALS, what, strict=True)}
            known = int((await root.map("WHOAMI"))["revision"])
            await root.map("POLICY.APPLY", known, json.dumps({"roles": changed}))
            for each in watched:
                await each.listen()
                each.allow(policy, anew=True)
    for each in watched:
        await each.listen()


@pytest.mark.slow
@pytest.mark.guarantee("G13")
def test_what_reaches_a_principal_is_what_it_may_see() -> None:
    """Whatever happens and however the policy changes, no name comes to somebody who could not see it."""

    async def scenario(box: Box) -> None:
        loop = asyncio.get_running_loop()
        played_stories = await asyncio.to_thread(_play_all, box, loop)
        assert played_stories >= EXAMPLES // 2

    serve(scenario)


@pytest.mark.guarantee("G13")
def test_a_refusal_quotes_no_name_to_who_may_not_hear_of_it() -> None:
    """A story that was found: an event without names told one in words, which a narrower rule keeps from ann."""
    hears_most = [(("", False), HEARD), (("ab", True), ("acquire",))]
    first = (hears_most, [(("", False), SEEN)])
    serve(lambda box: played(box, first, [("try", "ab")]))


LEAKS = {
    "events": lambda patch: patch.setattr(Broadcast, "_told_of", lambda _, __, event: event),
    "lists": lambda patch: patch.setattr(pages, "_seen_page", lambda *given: given[-1]),
    "explanations": lambda patch: patch.setattr(pages, "rights_in", lambda *_: None),
}


@pytest.mark.slow
@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_found(leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any one of the places that hold something back left out, a story is found that shows it."""
    LEAKS[leak](monkeypatch)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        test_what_reaches_a_principal_is_what_it_may_see()


def _play_all(box: Box, loop: asyncio.AbstractEventLoop) -> int:
    """Hypothesis calls a plain function: each story is played on the loop of the server, and waited for."""
    count = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(policies, st.lists(steps, min_size=3, max_size=20))
    def play(first: Any, story: list[Any]) -> None:
        nonlocal count
        count += 1
        asyncio.run_coroutine_threadsafe(played(box, first, story), loop).result(60)

    play()
    return count
