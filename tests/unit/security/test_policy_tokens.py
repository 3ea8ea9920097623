"""Tokens of the policy: known to every node at once, and gone with all they opened when they are revoked."""

import asyncio
import time
from pathlib import Path

import pytest

from fencehold.core.policy import token_id
from fencehold.doors.resp import door
from fencehold.security.tokens import Line, add, digest_of, new_token
from tests.unit.doors.box import Client
from tests.unit.doors.policies import apply
from tests.unit.security.test_principals import USERS, Box, asking


async def logged_in(box: Box, token: str) -> Client:
    client = await box.client()
    assert await client.call("AUTH", "token", token) == "OK"
    return client


async def made(ops: Client, user: str, *, expires_s: int = 0) -> str:
    """A token, which the policy knows by its hash."""
    token = new_token()
    digest = digest_of(token)
    kept = {"digest": digest, "made_s": 1, "expires_s": expires_s}
    await apply(ops, tokens={user: {token_id(digest): kept}})
    return token


async def closed(client: Client) -> None:
    """The server ends the connection, whatever it says before."""
    async with asyncio.timeout(30):
        while await client._stream.read(4_096):
            pass
    await client.close()


async def test_a_token_of_the_policy_is_its_user_and_shown_to_nobody(tmp_path: Path) -> None:
    """By the same login as one of a file; what is listed is what it is called, and neither token nor hash."""
    async with asking(tmp_path) as box:
        ops = await box.named("ops")
        await apply(ops, **USERS)
        token = await made(ops, "ci-runner", expires_s=int(time.time()) + 3_600)
        client = await logged_in(box, token)
        assert (await client.map("WHOAMI"))["principal"] == "ci-runner"
        await client.call("LOCK.ACQUIRE", "billing:a")
        assert await client.refusal("LOCK.ACQUIRE", "search:a") == "DENIED"
        shown = (await ops.map("POLICY.GET"))["policy"]
        digest = digest_of(token)
        assert token_id(digest) in shown
        assert digest not in shown
        assert token not in shown
        for each in (ops, client):
            await each.close()


async def test_revoking_a_token_ends_what_it_opened_and_nothing_else(tmp_path: Path) -> None:
    """Its sessions end in that entry, its connections are closed; those of another token of its user go on."""
    async with asking(tmp_path) as box:
        ops = await box.named("ops")
        await apply(ops, **USERS)
        token, other = await made(ops, "ci-runner"), await made(ops, "ci-runner")
        client, idle, stays = [await logged_in(box, each) for each in (token, token, other)]
        await client.call("SESSION.OPEN", "TTL", 60_000)
        await client.call("LOCK.ACQUIRE", "billing:a")
        await stays.call("SESSION.OPEN", "TTL", 60_000)
        told = await apply(ops, tokens={"ci-runner": {token_id(digest_of(token)): None}})
        assert told["sessions_ended"] == 1
        for each in (client, idle):
            await closed(each)
        assert await stays.call("LOCK.ACQUIRE", "billing:a", "WAIT", 0)
        again = await box.client()
        assert await again.refusal("AUTH", "token", token) == "WRONGPASS"
        for each in (ops, stays, again):
            await each.close()


async def test_revoking_the_token_of_a_listener_ends_the_connections_of_whom_it_speaks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the policy as one of a file: it has lost the trust by which they are known."""
    monkeypatch.setattr(door, "SWEEP_S", 0.05)
    file, of_file = tmp_path / "tokens", new_token()
    add(file, Line("listener/file", digest_of(of_file)))
    async with asking(tmp_path, file) as box:
        ops = await box.named("ops")
        await apply(ops, **USERS)
        await apply(ops, users={"listener/edge": {}, "listener/other": {}})
        revoked, stays = await made(ops, "listener/edge"), await made(ops, "listener/other")
        clients = [await box.client() for _ in range(3)]
        for client, token in zip(clients, (of_file, revoked, stays), strict=True):
            assert await client.call("AUTH", "for:ci-runner", token) == "OK"
        file.write_text("")
        await closed(clients[0])
        await apply(ops, tokens={"listener/edge": {token_id(digest_of(revoked)): None}})
        await closed(clients[1])
        assert (await clients[2].map("WHOAMI"))["principal"] == "ci-runner"
        for each in (ops, clients[2]):
            await each.close()


async def test_a_listener_with_a_token_of_the_policy_opens_sessions_for_others(tmp_path: Path) -> None:
    """They are whose it speaks for. Without the token its connections end; what was held with them runs out."""
    async with asking(tmp_path) as box:
        ops = await box.named("ops")
        await apply(ops, **USERS)
        await apply(ops, users={"listener/edge": {}})
        token = await made(ops, "listener/edge")
        client, plain = await box.client(), await box.client()
        for each in (client, plain):
            assert await each.call("AUTH", "for:ci-runner", token) == "OK"
        await client.call("SESSION.OPEN", "TTL", 60_000)
        assert await client.call("LOCK.ACQUIRE", "billing:a")
        assert await plain.call("LOCK.ACQUIRE", "billing:b")
        assert await plain.refusal("LOCK.ACQUIRE", "foreign") == "DENIED"
        told = await apply(ops, tokens={"listener/edge": {token_id(digest_of(token)): None}})
        assert told["sessions_ended"] == 0
        for each in (client, plain):
            await closed(each)
        assert not await ops.call("LOCK.ACQUIRE", "billing:a", "WAIT", 0)
        await ops.close()


async def test_a_session_is_taken_up_by_its_user_and_still_ends_with_its_token(tmp_path: Path) -> None:
    """Resumed on a connection of another token, it is what the first one opened."""
    async with asking(tmp_path) as box:
        ops = await box.named("ops")
        await apply(ops, **USERS)
        token, other = await made(ops, "ci-runner"), await made(ops, "ci-runner")
        first, second = await logged_in(box, token), await logged_in(box, other)
        opened = await first.map("SESSION.OPEN", "TTL", 60_000, "GRACE", 60_000)
        await first.close()
        await second.call("SESSION.RESUME", opened["session"], opened["secret"])
        assert (await apply(ops, tokens={"ci-runner": {token_id(digest_of(token)): None}}))["sessions_ended"] == 1
        assert await second.refusal("SESSION.KEEPALIVE") == "NOSESSION"
        for each in (ops, second):
            await each.close()


async def test_an_expired_token_admits_nobody_and_ends_its_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock of the node; its sessions are left to run out, for nobody can take them up."""
    monkeypatch.setattr(door, "SWEEP_S", 0.05)
    async with asking(tmp_path) as box:
        ops = await box.named("ops")
        await apply(ops, **USERS)
        late = await made(ops, "ci-runner", expires_s=1)
        soon = await made(ops, "ci-runner", expires_s=int(time.time()) + 3_600)
        client = await logged_in(box, soon)
        refused = await box.client()
        assert await refused.refusal("AUTH", "token", late) == "WRONGPASS"
        now_s = time.time
        monkeypatch.setattr(time, "time", lambda: now_s() + 3_700)
        await closed(client)
        monkeypatch.undo()
        for each in (ops, refused):
            await each.close()


async def test_a_token_that_is_deleted_from_a_file_disconnects_who_came_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is for one node: that one looks at it now and then. Others of the file stay."""
    monkeypatch.setattr(door, "SWEEP_S", 0.05)
    tokens, token, other = tmp_path / "tokens", new_token(), new_token()
    for each in (token, other):
        add(tokens, Line("ci-runner", digest_of(each)))
    async with asking(tmp_path, tokens) as box:
        client, stays = await logged_in(box, token), await logged_in(box, other)
        tokens.write_text(f"{Line('ci-runner', digest_of(other))}\n")
        await closed(client)
        assert await stays.call("PING") == "PONG"
        await stays.close()


async def test_tokens_of_a_user_that_is_disabled_admit_nobody(tmp_path: Path) -> None:
    """And do again when it is enabled: they are not forgotten."""
    async with asking(tmp_path) as box:
        ops = await box.named("ops")
        await apply(ops, **USERS)
        token = await made(ops, "ci-runner")
        client = await logged_in(box, token)
        await apply(ops, users={"ci-runner": {"roles": ["billing"], "disabled": True}})
        await closed(client)
        refused = await box.client()
        assert await refused.refusal("AUTH", "token", token) == "WRONGPASS"
        await apply(ops, users={"ci-runner": {"roles": ["billing"]}})
        assert await refused.call("AUTH", "token", token) == "OK"
        for each in (ops, refused):
            await each.close()


async def test_a_token_is_in_the_state_that_every_node_has_as_its_hash_alone(tmp_path: Path) -> None:
    """No file has to be copied from node to node."""
    async with asking(tmp_path) as box:
        ops = await box.named("ops")
        await apply(ops, **USERS)
        token = await made(ops, "ci-runner")
        await ops.close()
        state = b"".join(box.server.node.replica.machine.snapshot())
        assert digest_of(token).encode() in state
        assert token.encode() not in state
