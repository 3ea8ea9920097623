"""Authentication over the wire: who is let in, as whom, and what those see that are not."""

import json
from typing import Any

import pytest

from fencehold.security.secrets import hashed
from tests.unit.doors.box import Box, Client, Failed, as_map, serve
from tests.unit.doors.policies import apply, as_somebody, change, rules
from tests.unit.node.doubles import until

HASH = hashed("s3cret")


def users(**more: Any) -> dict[str, Any]:
    return {
        "users": {
            "sys": {"roles": ["root"]},
            "ann": {"roles": ["root"], "secrets": [HASH]},
            "off": {"disabled": True, "secrets": [HASH]},
            **more,
        },
        "roles": {"root": rules(all="admin acquire observe")},
    }


async def answers(client: Client, count: int) -> list[str]:
    """The next replies: the codes of errors, and the text of the others."""
    found = []
    for _ in range(count):
        try:
            found.append(str(await client.reply()))
        except Failed as failed:
            found.append(failed.code)
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_a_user_is_let_in_by_its_secret(version: int) -> None:
    """AUTH and HELLO AUTH make a connection somebody's, and what it opens then is that principal's."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **users())
        client, other = await box.client(2), await box.client(2)
        assert await client.call("AUTH", "ann", "s3cret") == "OK"
        hello = as_map(await other.call("HELLO", version, "AUTH", "ann", "s3cret", "SETNAME", "x"))
        assert hello["proto"] == version
        for each in (client, other):
            assert (await each.map("WHOAMI"))["principal"] == "ann"
            await each.call("LOCK.ACQUIRE", f"a{id(each)}")
        assert {session.principal for session in box.state.sessions.values()} == {"ann"}

    serve(scenario)


def test_what_is_wrong_is_told_alike_and_in_its_order() -> None:
    """A user that is not there, a disabled one, a wrong secret: the same words. A pipeline is answered whole."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **users())
        said = set()
        for user, secret in (("ann", "wrong"), ("eve", "s3cret"), ("off", "s3cret"), ("sys", ""), ("ann*", "x")):
            client = await box.client(3)
            said.add(str(await client.failure("AUTH", user, secret)))
            assert await client.refusal("LOCK.ACQUIRE", "a") == "NOAUTH"
        assert len(said) == 1
        client = await box.client(3)
        for words in (("PING",), ("AUTH", "ann", "no"), ("PING",), ("LOCK.LIST",), ("AUTH", "ann", "s3cret")):
            client.send(*words)
        client.send("LOCK.ACQUIRE", "a", "WAIT", 0)
        found = await answers(client, 6)
        assert found[:5] == ["PONG", "WRONGPASS", "PONG", "NOAUTH", "OK"]
        assert "'fence': " in found[5]

    serve(scenario)


def test_a_failed_hello_changes_nothing() -> None:
    """Neither the protocol nor the principal."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **users())
        client = await box.client(2)
        assert await client.refusal("HELLO", 3, "AUTH", "ann", "wrong") == "WRONGPASS"
        assert as_map(await client.call("HELLO"))["proto"] == 2
        assert (await client.map("WHOAMI"))["principal"] == ""

    serve(scenario)


def test_one_is_the_same_from_the_first_session_on() -> None:
    """AUTH comes before the first session and the first watch, for what there is is somebody's."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **users())
        client = await as_somebody(box, "sys", session=9_000)
        assert await client.refusal("AUTH", "ann", "s3cret") == "USAGE"

    serve(scenario)


def test_a_session_is_resumed_only_as_who_opened_it() -> None:
    """The secret of a session alone does not open it to another principal, and the words tell nothing."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **users())
        client = await as_somebody(box, "ann")
        opened = await client.map("SESSION.OPEN", "TTL", 60_000, "GRACE", 60_000)
        await client.close()
        resume = ("SESSION.RESUME", opened["session"], opened["secret"])
        assert await (await as_somebody(box, "sys")).refusal(*resume) == "NOSESSION"
        assert (await (await as_somebody(box, "ann")).map(*resume))["session"] == opened["session"]

    serve(scenario)


def test_a_plain_client_is_told_what_to_do_about_a_quota_of_ttls() -> None:
    """It has named no ttl: that of its connection is too long, and a session of its own may be shorter."""

    async def scenario(box: Box) -> None:
        quotas = {"brief": {"principal": "ann", "ttl_ms": 5_000}}
        await change(box, await box.client(3), **users(), quotas=quotas)
        ann = await as_somebody(box, "ann")
        assert (await ann.map("WHOAMI"))["ttl_ms_max"] == 5_000
        with pytest.raises(Failed, match=r"a ttl is at most 5 s; .*: SESSION\.OPEN TTL 5000 first"):
            await ann.call("LOCK.ACQUIRE", "orders")
        await ann.call("SESSION.OPEN", "TTL", 5_000)
        assert await ann.call("LOCK.ACQUIRE", "orders")

    serve(scenario)


def test_a_user_that_is_disabled_loses_its_session_at_once() -> None:
    """Its client is told that it has ended and why; its next command is refused."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **users())
        admin, client = await as_somebody(box, "sys"), await as_somebody(box, "ann", session=60_000)
        await client.call("LOCK.ACQUIRE", "a")
        told = await apply(admin, users={"ann": {"roles": ["root"], "disabled": True}})
        assert told == {"revision": 2, "sessions_ended": 1, "waiters_refused": 0}
        assert (await client.push())[::2] == ["ended", "revoked"]
        assert await client.refusal("LOCK.ACQUIRE", "a") == "NOAUTH"
        assert not box.state.held

    serve(scenario)


def test_a_waiter_hears_that_it_may_not_wait_any_longer() -> None:
    """One that blocks is answered with an error, one that does not by a push."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **users(bob={"roles": ["root"]}))
        admin = await as_somebody(box, "sys", session=60_000)
        await admin.call("LOCK.ACQUIRE", "a")
        plain, client = await as_somebody(box, "bob", 2), await as_somebody(box, "bob", session=60_000)
        plain.send("LOCK.ACQUIRE", "a")
        await client.call("LOCK.ACQUIRE", "a", "REQUEST", 5, "ASYNC")
        await box.waiting(2)
        assert (await apply(admin, users={"bob": {}}))["waiters_refused"] == 2
        assert (await answers(plain, 1)) == ["DENIED"]
        assert (await client.push())[:3] == ["refused", 5, "DENIED"]

    serve(scenario)


def test_hashes_go_in_and_never_come_out() -> None:
    """POLICY.GET says how many secrets a user has; a change that names none leaves them."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **users())
        admin = await as_somebody(box, "sys")
        await apply(admin, users={"ann": {"roles": ["root"]}})
        shown = await admin.map("POLICY.GET")
        assert HASH not in str(shown)
        told = {"roles": ["root"], "disabled": False, "secrets": 1, "tokens": {}}
        assert json.loads(shown["policy"])["users"]["ann"] == told
        assert await (await box.client(2)).call("AUTH", "ann", "s3cret") == "OK"

    serve(scenario)


def test_a_change_is_refused_if_the_policy_is_another_by_now() -> None:
    """CONFLICT, and what is no change of a policy is a usage error."""

    async def scenario(box: Box) -> None:
        await change(box, await box.client(3), **users())
        admin = await as_somebody(box, "sys")
        assert await admin.refusal("POLICY.APPLY", 0, "{}") == "CONFLICT"
        for wrong in (
            "",
            "[]",
            '{"users": 5}',
            '{"user": {}}',
            '{"roles": {"r": {"rules": [{"allow": ["fly"]}]}}}',
        ):
            assert await admin.refusal("POLICY.APPLY", 1, wrong) == "USAGE", wrong
        assert (await admin.map("POLICY.GET"))["revision"] == 1

    serve(scenario)


def test_who_may_what_is_told_with_the_rule_that_says_so() -> None:
    """CAN tells of oneself; of others, to an administrator."""

    async def scenario(box: Box) -> None:
        tables = users(bob={"roles": ["some"]})
        tables["roles"]["some"] = rules(db="acquire", secret_="")
        await change(box, await box.client(3), **tables)
        admin, bob = await as_somebody(box, "sys"), await as_somebody(box, "bob")
        for client in (admin, bob):
            told = await client.map("CAN", "bob", "acquire", "db:1")
            assert (told["allowed"], told["role"], json.loads(told["rule"])["prefix"]) == (1, "some", "db")
            assert (await client.map("CAN", "bob", "acquire", "secret"))["allowed"] == 0
        assert (await admin.map("CAN", "nobody", "observe", "x"))["known"] == 0
        assert (await admin.map("CAN", "sys", "admin", "x"))["allowed"] == 1
        assert await bob.refusal("CAN", "sys", "acquire", "x") == "DENIED"
        assert await admin.refusal("CAN", "sys", "fly", "x") == "USAGE"

    serve(scenario)


def test_too_many_commands_a_second_are_told_when_to_come_back() -> None:
    """What ends things goes on; a quota that only counts refuses nothing, and tells how often it would have."""

    async def scenario(box: Box) -> None:
        tables = users(bob={"roles": ["root"]})
        tables["quotas"] = {"slow": {"principal": "bob", "commands_per_s": 3}}
        await change(box, await box.client(3), **tables)
        bob, admin = await as_somebody(box, "bob", session=60_000), await as_somebody(box, "sys")
        grant = as_map(await bob.call("LOCK.ACQUIRE", "a"))
        await bob.call("LOCK.ACQUIRE", "b")
        failed = await bob.failure("LOCK.ACQUIRE", "c")
        assert failed.code == "BUSY"
        assert 0 < int(failed.detail.split()[0]) <= 334
        await bob.call("SESSION.KEEPALIVE")
        assert await bob.call("LOCK.RELEASE", "a", grant["fence"]) == "OK"
        box.clock.advance(400)
        await bob.call("LOCK.ACQUIRE", "c")
        quota = {"principal": "bob", "commands_per_s": 3, "mode": "count"}
        await apply(admin, quotas={"slow": quota})
        for name in "defghi":
            await bob.call("LOCK.ACQUIRE", name)
        exceeded = json.loads((await admin.map("POLICY.GET"))["exceeded"])
        assert exceeded["slow"]["commands_per_s"] > 3

    serve(scenario)


def test_the_other_tier_has_the_same_users_and_its_own_rules() -> None:
    """A right of one tier is none on the other; a user that is removed loses its sessions of both."""

    async def scenario(box: Box) -> None:
        tables = users(bob={"roles": ["quick"]})
        tables["roles"]["quick"] = {"rules": [{"prefix": "", "allow": ["acquire"], "tier": "efficiency"}]}
        await change(box, await box.client(3), **tables)
        admin, slow, quick = [await as_somebody(box, who) for who in ("sys", "bob", "bob")]
        await quick.call("TIER", "EFFICIENCY")
        for client in (slow, quick):
            await client.call("SESSION.OPEN", "TTL", 60_000)
        assert await slow.refusal("LOCK.ACQUIRE", "a") == "DENIED"
        await quick.call("LOCK.ACQUIRE", "a")
        await change(box, admin, users={"bob": None})
        for client in (slow, quick):
            assert (await client.push())[::2] == ["ended", "revoked"]
        await until(lambda: not box.server.volatile.node.replica.machine.state.sessions)

    serve(scenario)


def test_a_server_says_whether_anybody_is_asked() -> None:
    """In INFO, for `doctor`: nobody, or by the policy everybody who wants to do anything."""

    async def scenario(box: Box) -> None:
        client = await box.client(3)
        assert "\r\nauth:none\r\n" in await client.call("INFO")
        await change(box, client, **users())
        ann = await box.client(3)
        await ann.call("AUTH", "ann", "s3cret")
        told = await ann.call("INFO")
        assert "\r\nauth:policy\r\n" in told
        assert "\r\nprincipal:ann\r\n" in told

    serve(scenario)
