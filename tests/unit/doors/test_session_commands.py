"""Sessions on the wire: how their lives and those of connections hang together."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from fencehold.core.commands import Suspend
from fencehold.core.limits import Limits
from fencehold.doors.resp.bounds import Bounds
from fencehold.doors.resp.door import SWEEP_S
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import OutcomeUnknown, Unavailable
from tests.contract.engines.embedded import OneFault
from tests.unit.doors.box import Box, Client, Failed, as_map, serve, serving
from tests.unit.node.doubles import until

both = pytest.mark.parametrize("version", [2, 3])


async def opened(client: Client, ttl_ms: int = 5_000, grace_ms: int = 50) -> tuple[Any, Any]:
    """Open a session; returns id and secret."""
    session = await client.map("SESSION.OPEN", "TTL", ttl_ms, "GRACE", grace_ms)
    return session["session"], session["secret"]


@both
async def test_a_session_is_opened_kept_alive_and_closed(version: int) -> None:
    """The replies carry the logical time, a keep-alive moves the end on, and closing frees all it held."""
    async with serving() as box:
        client = await box.client(version)
        session = await client.map("SESSION.OPEN", "TTL", 1_000, "GRACE", 200, "META", "{}")
        assert session.pop("secret")
        assert session == {"session": 1, "ttl_ms": 1_000, "grace_ms": 200, "at": 0}
        await client.call("LOCK.ACQUIRE", "a")
        for _ in range(3):
            await box.pass_time(900)
            kept = await client.map("SESSION.KEEPALIVE")
            assert kept["came_at"] <= kept["at"]
            assert kept == {"at": box.state.now_at, "ttl_ms": 1_000, "came_at": kept["came_at"]}
        assert await client.call("SESSION.CLOSE") == "OK"
        assert not box.state.held
        assert await client.refusal("SESSION.KEEPALIVE") == "NOSESSION"
        if version == 3:
            await client.no_push()
        assert (await client.map("SESSION.OPEN", "TTL", 1_000))["session"] == 2


@both
@pytest.mark.guarantee("G6")
async def test_a_session_that_is_not_kept_alive_ends_whole(version: int) -> None:
    """What it held is free, what it waited for is NOSESSION, and it is told once that it is over."""
    async with serving() as box:
        client, other = await box.client(version), await box.client(version)
        await opened(client, ttl_ms=1_000)
        await client.call("LOCK.ACQUIRE", "a")
        await other.call("LOCK.ACQUIRE", "b")
        client.send("LOCK.ACQUIRE", "b")
        await box.waiting(1)
        await box.pass_time(1_000)
        with pytest.raises(Failed, match="NOSESSION session 1 has ended while this waited"):
            await client.reply()
        if version == 3:
            assert await client.push() == ["ended", 1, "expired"]
        assert (await other.map("LOCK.ACQUIRE", "a", "WAIT", 0))["name"] == "a"
        assert await client.refusal("SESSION.KEEPALIVE") == "NOSESSION"


@both
async def test_after_its_session_ended_a_client_gets_none_in_silence(version: int) -> None:
    """An acquire after the end of a session that was opened is NOSESSION until another is opened."""
    async with serving() as box:
        client = await box.client(version)
        await opened(client, ttl_ms=1_000)
        await box.pass_time(1_000)
        assert await client.refusal("LOCK.ACQUIRE", "a") == "NOSESSION"
        assert await client.refusal("LOCK.RELEASE", "a", 1) == "NOSESSION"
        assert not box.state.sessions
        await opened(client)
        assert (await client.map("LOCK.ACQUIRE", "a"))["fence"] == 1


@both
async def test_an_implicit_session_lives_as_long_as_its_connection(version: int) -> None:
    """It is kept alive however idle the client is, and ends when the connection does."""
    async with serving(door=Bounds(implicit_ttl_ms=90)) as box:
        client, other = await box.client(version), await box.client(version)
        await client.call("CLIENT", "SETNAME", "cron")
        await client.call("LOCK.ACQUIRE", "a")
        assert len(box.state.sessions) == 1
        for _ in range(8):
            renewed = dict(box.state.sessions_until)
            await box.pass_time(30)
            await until(lambda before=renewed: box.state.sessions_until != before)  # type: ignore[misc]
        [hold] = (await other.map("LOCK.INFO", "a"))["holds"]
        assert '"client": "cron"' in as_map(hold)["session_meta"]
        await client.close()
        await until(lambda: not box.state.held)
        assert not box.state.sessions


@both
@pytest.mark.guarantee("G7")
async def test_a_pause_of_the_server_costs_a_plain_client_nothing(version: int) -> None:
    """A minute in which it stood still, twice the ttl: the connection stands after it, and so does the lock."""
    async with serving() as box:
        client, other = await box.client(version), await box.client(version)
        await client.call("LOCK.ACQUIRE", "a")
        for _ in range(2):
            before = box.state.now_at
            box.clock.advance(60_000)
            await until(lambda at=before: box.state.now_at > at)  # type: ignore[misc]
        assert await other.call("LOCK.ACQUIRE", "a", "WAIT", 0) is None
        assert await client.call("LOCK.RELEASE", "a", 1) == "OK"


@both
@pytest.mark.guarantee("G6")
async def test_a_connection_does_not_outlive_its_implicit_session(version: int) -> None:
    """A client that lost what it held, though it closed nothing, is disconnected, not given another session."""
    async with serving() as box:
        client, other = await box.client(version), await box.client(version)
        await client.call("LOCK.ACQUIRE", "a")
        box.server.node.submit(Suspend(1), lambda *_: None)
        assert (await client.ended()).startswith("NOSESSION")
        assert (await other.map("LOCK.ACQUIRE", "a"))["fence"] == 2


@both
async def test_a_lost_connection_leaves_the_session_its_grace(version: int) -> None:
    """After the client's end closed, the session lives for its grace and no longer; then all it held is free."""
    async with serving() as box:
        client, other = await box.client(version), await box.client(version)
        await opened(client, grace_ms=50)
        await client.call("LOCK.ACQUIRE", "a")
        await client.close()
        await until(lambda: box.state.sessions_until[1] == 50)
        await box.pass_time(49)
        assert await other.call("LOCK.ACQUIRE", "a", "WAIT", 0) is None
        await box.pass_time(1)
        assert (await other.map("LOCK.ACQUIRE", "a", "WAIT", 0))["fence"] == 2


@both
async def test_resumed_within_its_grace_a_session_loses_nothing(version: int) -> None:
    """On another connection it goes on with what it held and waited for, and lives for its ttl again."""
    async with serving() as box:
        client, holder = await box.client(version), await box.client(version)
        session, secret = await opened(client, grace_ms=50)
        await client.call("LOCK.ACQUIRE", "a")
        await holder.call("LOCK.ACQUIRE", "b")
        client.send("LOCK.ACQUIRE", "b", "REQUEST", 9)
        await box.waiting(1)
        await client.close()
        await until(lambda: box.state.sessions_until[1] == 50)
        await box.pass_time(40)
        again = await box.client(version)
        resumed = await again.map("SESSION.RESUME", session, secret)
        assert resumed == {"session": 1, "ttl_ms": 5_000, "grace_ms": 50, "at": 40}
        await box.pass_time(4_000)
        assert await again.call("LOCK.RELEASE", "a", 1) == "OK"
        await holder.call("LOCK.RELEASE", "b", 2)
        assert (await again.map("LOCK.ACQUIRE", "b", "REQUEST", 9))["fence"] == 3


@both
async def test_a_session_is_told_which_of_its_holds_have_ended(version: int) -> None:
    """By their fences, once each: what is another session's, or broken in one of its names, is not its own."""
    async with serving() as box:
        client, other = await box.client(version, session=50_000), await box.client(version, session=50_000)
        for name in ("a", "b", "c"):
            await client.call("LOCK.ACQUIRE", name)
        await client.call("LOCK.MACQUIRE", 2, "d", "e")
        await other.call("LOCK.BREAK", "b")
        await other.call("LOCK.ACQUIRE", "b")
        await other.call("LOCK.BREAK", "e")
        assert await client.call("SESSION.HELD", "a", 1, "b", 2, "c", 3, "d", 4, "e", 4) == [2, 4]
        assert await client.call("SESSION.HELD", "b", 5, "x", 9) == [5, 9]
        assert await client.call("SESSION.HELD", "a", 1) == []
        for wrong in (["a"], ["a", 1, "b"], ["a", "x"], ["a", 1] * 129):
            assert await client.refusal("SESSION.HELD", *wrong) == "USAGE"


@both
async def test_resuming_takes_a_session_from_the_connection_that_had_it(version: int) -> None:
    """The older connection is closed with a word, and its closing does not suspend the session."""
    async with serving() as box:
        old, new = await box.client(version), await box.client(version)
        session, secret = await opened(old, grace_ms=10)
        await old.call("LOCK.ACQUIRE", "a")
        await new.call("SESSION.RESUME", session, secret)
        assert (await old.ended()).startswith("UNAVAILABLE session 1 was resumed by another connection")
        await old.close()
        await box.pass_time(1_000)
        assert await new.call("LOCK.RELEASE", "a", 1) == "OK"
        assert as_map((await new.call("SESSION.LIST"))[1][0])["connected"] == 1


@both
@pytest.mark.guarantee("G7")
async def test_a_resume_that_comes_late_costs_the_session_nothing_but_its_connection(version: int) -> None:
    """A resume whose client is long gone from there, and then the end of its connection: the ttl goes on."""
    async with serving() as box:
        good, late = await box.client(version), await box.client(version)
        session, secret = await opened(good, grace_ms=10)
        await late.call("SESSION.RESUME", session, secret)
        await late.close()
        await until(lambda: not box.server.node.routes.is_attached(session))
        await box.pass_time(1_000)
        assert box.state.sessions_until[session] == 5_000
        again = await box.client(version)
        assert (await again.map("SESSION.RESUME", session, secret))["session"] == session


@both
async def test_a_resumed_connection_counts_the_grace_once_a_keep_alive_came_by_it(version: int) -> None:
    """Then the client is known to be there, and the end of the connection is the client's."""
    async with serving() as box:
        first, second = await box.client(version), await box.client(version)
        session, secret = await opened(first, grace_ms=50)
        await second.call("SESSION.RESUME", session, secret)
        await second.call("SESSION.KEEPALIVE")
        await second.close()
        await until(lambda: box.state.sessions_until[session] == 50)


@pytest.mark.guarantee("G9")
async def test_a_last_word_is_never_taken_for_a_reply() -> None:
    """A connection closed while replies are due is closed without a word: none of them may seem refused."""
    async with serving() as box:
        holder, old, new = await box.client(), await box.client(), await box.client()
        await holder.call("LOCK.ACQUIRE", "a")
        session, secret = await opened(old)
        old.send("LOCK.ACQUIRE", "a", "REQUEST", 1)
        await box.waiting(1)
        await new.call("SESSION.RESUME", session, secret)
        assert await old.ended() == ""
        assert len(box.state.waiters) == 1


@both
async def test_a_wrong_secret_and_an_ended_session_are_told_the_same(version: int) -> None:
    """Who guesses learns nothing, and whoever has the session keeps it."""
    async with serving() as box:
        owner, thief = await box.client(version), await box.client(version)
        session, secret = await opened(owner)
        wrong = await thief.failure("SESSION.RESUME", session, secret + "x")
        never = await thief.failure("SESSION.RESUME", 77, secret)
        assert wrong.code == never.code == "NOSESSION"
        assert wrong.detail.replace("1", "77") == never.detail
        assert await thief.refusal("SESSION.RESUME", session) == "USAGE"
        assert await thief.refusal("SESSION.RESUME", "x", secret) == "USAGE"
        assert (await owner.map("LOCK.ACQUIRE", "a"))["fence"] == 1
        await owner.call("SESSION.CLOSE")
        assert await thief.refusal("SESSION.RESUME", session, secret) == "NOSESSION"


async def test_nobody_takes_up_an_implicit_session() -> None:
    """It has no secret, so no secret opens it, the empty one least of all."""
    async with serving() as box:
        owner, thief = await box.client(), await box.client()
        await owner.call("LOCK.ACQUIRE", "a")
        assert await thief.refusal("SESSION.RESUME", 1, "") == "NOSESSION"
        assert await owner.call("LOCK.RELEASE", "a", 1) == "OK"


@both
async def test_a_connection_has_one_session(version: int) -> None:
    """A second open or resume is a usage error, also while the first is under way, and leaves nothing behind."""
    async with serving() as box:
        client, other = await box.client(version), await box.client(version)
        session, secret = await opened(other)
        for _ in range(3):
            client.send("SESSION.OPEN", "TTL", 5_000)
        client.send("SESSION.RESUME", session, secret)
        replies = []
        for _ in range(4):
            try:
                replies.append(as_map(await client.reply())["session"])
            except Failed as failed:
                replies.append(failed.code)
        assert replies.count("USAGE") == 3
        await until(lambda: len(box.state.sessions) == 2 - (replies[3] == session))
        assert await client.refusal("SESSION.OPEN", "TTL", 5_000) == "USAGE"
        assert await client.refusal("SESSION.RESUME", session, secret) == "USAGE"
        assert (await client.map("LOCK.ACQUIRE", "a"))["fence"] == 1


@both
@pytest.mark.parametrize("second", ["open", "resume"])
async def test_a_session_asked_for_behind_a_plain_acquire_is_refused(version: int, second: str) -> None:
    """The acquire gets its implicit session and its reply, whatever is pipelined behind it."""
    async with serving() as box:
        client, other = await box.client(version), await box.client(version)
        session, secret = await opened(other)
        client.send("LOCK.ACQUIRE", "a")
        if second == "open":
            client.send("SESSION.OPEN", "TTL", 5_000)
        else:
            client.send("SESSION.RESUME", session, secret)
        client.send("LOCK.ACQUIRE", "b")
        assert as_map(await client.reply())["name"] == "a"
        with pytest.raises(Failed, match="USAGE"):
            await client.reply()
        assert as_map(await client.reply())["name"] == "b"
        assert len(box.state.sessions) == 2


async def test_an_acquire_behind_an_open_uses_that_session() -> None:
    """A client may open its session and acquire in one go."""
    async with serving() as box:
        client = await box.client()
        client.send("SESSION.OPEN", "TTL", 5_000)
        client.send("LOCK.ACQUIRE", "a")
        client.send("LOCK.ACQUIRE", "b")
        session = as_map(await client.reply())["session"]
        for name in "ab":
            assert as_map(await client.reply())["name"] == name
        await until(lambda: list(box.state.sessions) == [session])
        assert {hold.session for hold in box.state.held.values()} == {session}


async def test_a_keep_alive_behind_a_close_does_not_come_before_it() -> None:
    """Though renewals go to the front of an entry, this one finds the session closed."""
    async with serving() as box:
        client = await box.client()
        await opened(client)
        client.send("SESSION.CLOSE")
        client.send("SESSION.KEEPALIVE")
        client.send("LOCK.ACQUIRE", "a")
        assert await client.reply() == "OK"
        for _ in range(2):
            with pytest.raises(Failed, match="NOSESSION"):
                await client.reply()


@pytest.mark.parametrize("words", [("SESSION.OPEN", "TTL", 5_000), ("LOCK.ACQUIRE", "a")])
async def test_a_client_gone_before_its_session_was_there_leaves_none(words: tuple[str | int, ...]) -> None:
    """A session whose opening ends after its connection is closed again, and nothing is acquired for it."""
    async with serving() as box:
        for _ in range(20):
            client = await box.client()
            client.send(*words)
            client.writer.transport.abort()
        await until(lambda: len(box.server.door.connections) == 0)
        await until(lambda: not box.state.sessions)
        assert not box.state.held


async def test_a_resume_raced_by_the_end_of_the_old_connection_wins() -> None:
    """Whichever of the two is noticed first, the session goes on with the new connection, for its whole ttl."""
    async with serving() as box:
        client = await box.client()
        session, secret = await opened(client, grace_ms=10)
        for turn in range(30):
            new = await box.client()
            if turn % 2:
                client.writer.transport.abort()
            new.send("SESSION.RESUME", session, secret)
            await asyncio.sleep(0.0005 * (turn % 5))
            client.writer.transport.abort()
            assert as_map(await new.reply())["session"] == session
            await until(lambda: len(box.server.door.connections) == 1)
            await box.pass_time(20)
            client = new


@pytest.mark.parametrize("error", [Unavailable("out of reach"), OutcomeUnknown("the reply was lost")])
async def test_a_resume_that_failed_can_be_tried_again(error: Exception) -> None:
    """On the same connection, once the journal is back: the session was not lost, nor was the client told so."""
    faults = OneFault()

    async with serving(journal=lambda: MemoryJournal(MemoryStore(), faults=faults)) as box:
        client, new = await box.client(), await box.client()
        session, secret = await opened(client, grace_ms=5_000)
        await client.call("LOCK.ACQUIRE", "a")
        await client.close()
        await until(lambda: len(box.server.door.connections) == 1)
        faults.armed = ("append.before" if isinstance(error, Unavailable) else "append.stored", error)
        await until(lambda: faults.armed is None)
        codes = set()
        while True:
            try:
                await new.call("SESSION.RESUME", session, secret)
                break
            except Failed as failed:
                codes.add(failed.code)
        assert codes <= {"UNAVAILABLE", "UNKNOWN"}
        assert await new.call("LOCK.RELEASE", "a", 1) == "OK"


async def test_clients_hear_of_a_failing_journal_and_go_on() -> None:
    """While the journal is out of reach all is UNAVAILABLE; who blocked goes on blocking, and is granted later."""
    faults = OneFault()

    async with serving(journal=lambda: MemoryJournal(MemoryStore(), faults=faults)) as box:
        holder, waiter = await box.client(), await box.client(2, session=50_000)
        await holder.call("LOCK.ACQUIRE", "a")
        waiter.send("LOCK.ACQUIRE", "a")
        await box.waiting(1)
        faults.armed = ("append.before", Unavailable("out of reach"))
        await until(lambda: faults.armed is None)
        seen = set()
        while True:
            try:
                assert await holder.call("LOCK.RELEASE", "a", 1) == "OK"
                break
            except Failed as failed:
                seen.add(failed.code)
            try:
                await holder.call("LOCK.INFO", "a", "STALE")
                await holder.call("LOCK.INFO", "a")
            except Failed as failed:
                seen.add(failed.code)
        assert seen == {"UNAVAILABLE"}
        assert as_map(await waiter.reply())["fence"] == 2


def test_an_implicit_session_lives_out_its_time_after_a_kill(tmp_path: Path) -> None:
    """Its client may not know yet that its server was killed, and was told of that time."""
    left = tmp_path / "left"

    async def before(box: Box) -> None:
        plain, client = await box.client(), await box.client(session=50_000)
        assert (await plain.map("LOCK.ACQUIRE", "plain"))["ttl_ms"] == 20_000
        await client.call("LOCK.ACQUIRE", "explicit")
        # As a kill would leave it.
        shutil.copytree(tmp_path / "data", left, ignore=shutil.ignore_patterns("lock"))

    async def after(box: Box) -> None:
        client = await box.client()
        await box.pass_time(20_000)
        assert await client.call("LOCK.ACQUIRE", "plain", "WAIT", 0) is None
        assert await client.call("LOCK.ACQUIRE", "explicit", "WAIT", 0) is None
        await box.pass_time(10_000)
        assert as_map(await client.call("LOCK.ACQUIRE", "plain", "WAIT", 0))["fence"] == 3

    serve(before, journal=lambda: FileJournal(tmp_path / "data"))
    serve(after, journal=lambda: FileJournal(left))


@both
async def test_a_plain_client_is_told_of_no_more_time_than_is_sure(version: int) -> None:
    """Whatever ttl it asks for, what it holds does not outlive a lost server for longer; a shorter ttl is told."""
    async with serving() as box:
        plain, client = await box.client(version), await box.client(version, session=50_000)
        told = [(await plain.map("LOCK.ACQUIRE", f"a{ttl}", "TTL", ttl))["ttl_ms"] for ttl in (0, 60_000, 5_000)]
        assert told == [20_000, 20_000, 5_000]
        assert (await plain.map("LOCK.EXTEND", "a5000", 3, 60_000))["ttl_ms"] == 20_000
        assert (await plain.map("SESSION.KEEPALIVE"))["ttl_ms"] == 20_000
        plain.send("LOCK.ACQUIRE", "b", "TTL", 60_000)
        await plain.reply()
        client.send("LOCK.ACQUIRE", "a0", "TTL", 60_000)
        await box.waiting(1)
        await plain.call("LOCK.RELEASE", "a0", 1)
        # Whoever keeps its session alive itself knows how long it has it.
        grant = as_map(await client.reply())
        assert (grant["ttl_ms"], grant["own_ttl"]) == (60_000, 1)
        plain.send("LOCK.ACQUIRE", "a0", "TTL", 60_000)
        await box.waiting(1)
        await client.call("LOCK.RELEASE", "a0", grant["fence"])
        grant = as_map(await plain.reply())
        assert (grant["ttl_ms"], grant["own_ttl"]) == (20_000, 1)


@pytest.mark.guarantee("G7")
def test_what_a_plain_client_is_told_leaves_room_for_renewals_that_come_late() -> None:
    """Of the ttl of its session so much is left at any moment, also if a sweep and an entry were late."""
    bounds, late_ms = Bounds(), 2 * Limits().elapsed_ms_max
    longest_ms = (bounds.implicit_renewal_s + SWEEP_S) * 1000 + late_ms
    assert bounds.implicit_sure_ms == 20_000
    assert bounds.implicit_ttl_ms - longest_ms >= bounds.implicit_sure_ms


@both
async def test_a_plain_client_is_let_go_before_its_lock_is_given_on(version: int) -> None:
    """A server that stops ends the session of a plain client, and its connection with it, not later."""
    async with serving() as box:
        plain, waiter = await box.client(version), await box.client(3, session=50_000)
        await plain.call("LOCK.ACQUIRE", "a")
        await waiter.call("LOCK.ACQUIRE", "a", "REQUEST", 1, "ASYNC")
        (connection,) = [each for each in box.server.door.connections if each.number == 1]
        stopping = asyncio.create_task(box.server.stop())
        assert (await waiter.push())[0] == "grant"
        assert connection.ending
        assert await plain.ended() == ""
        await stopping


async def test_a_blocking_acquire_is_acknowledged_like_any_reply() -> None:
    """Nothing is left to be settled for a client that blocked and says by ANSWERED that it was told."""
    async with serving() as box:
        holder, client = await box.client(), await box.client()
        await opened(client)
        fence = as_map(await holder.call("LOCK.ACQUIRE", "a"))["fence"]
        client.send("LOCK.ACQUIRE", "a", "REQUEST", 1)
        await box.waiting(1)
        await holder.call("LOCK.RELEASE", "a", fence)
        await client.reply()
        await client.call("LOCK.ACQUIRE", "b", "REQUEST", 2, "ANSWERED", 1)
        await until(lambda: all(not s.final_answers and len(s.answers) <= 1 for s in box.state.sessions.values()))
