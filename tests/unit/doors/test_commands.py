"""Every command of the protocol, in RESP2 and in RESP3: what it is answered, and what it is refused with."""

import json

import pytest

from fencehold import __version__
from tests.unit.doors.box import as_map, serving
from tests.unit.node.doubles import NOON

both = pytest.mark.parametrize("version", [2, 3])


@both
async def test_hello_says_who_is_there(version: int) -> None:
    """HELLO answers in the protocol it agreed on, and a version that is none changes nothing."""
    async with serving() as box:
        client = await box.client()
        hello = await client.map("HELLO", version, "SETNAME", "worker 7")
        assert hello["server"] == "fencehold"
        assert (hello["version"], hello["proto"], hello["role"]) == (__version__, version, "leader")
        assert await client.call("CLIENT", "GETNAME") == "worker 7"
        assert await client.refusal("HELLO", 4) == "NOPROTO"
        assert await client.refusal("HELLO", "x") == "USAGE"
        assert await client.refusal("HELLO", version, "AUTH", "user", "secret") == "USAGE"
        assert await client.refusal("HELLO", version, "WHAT") == "USAGE"
        assert (await client.map("hello"))["proto"] == version


@both
async def test_what_redis_clients_say_when_they_connect(version: int) -> None:
    """The small talk of Redis clients is answered so that they go on."""
    async with serving() as box:
        client = await box.client(version)
        assert await client.call("PING") == "PONG"
        assert await client.call("PING", "you") == "you"
        assert await client.call("ECHO", "that") == "that"
        assert await client.call("SELECT", 0) == "OK"
        assert await client.refusal("SELECT", 1) == "USAGE"
        assert await client.call("CLIENT", "SETNAME", "me") == "OK"
        assert await client.call("CLIENT", "SETINFO", "LIB-NAME", "x") == "OK"
        assert await client.call("CLIENT", "ID") > 0
        assert await client.refusal("CLIENT", "KILL") == "USAGE"
        assert ["lock.acquire", -2, ["write"], 1, 1, 1, [], [], [], []] in await client.call("COMMAND")
        assert await client.call("COMMAND", "GETKEYS", "LOCK.MACQUIRE", 2, "a", "b") == ["a", "b"]
        assert await client.refusal("COMMAND", "GETKEYS", "PING") == "USAGE"
        assert not await client.call("COMMAND", "DOCS")
        assert await client.call("COMMAND", "COUNT") > 20
        assert not await client.call("CONFIG", "GET", "save")
        assert await client.refusal("CONFIG", "SET", "save", "") == "USAGE"
        facts = dict(line.split(":", 1) for line in (await client.call("INFO")).split("\r\n") if ":" in line)
        assert (facts["engine"], facts["role"], facts["connected_clients"]) == ("memory", "leader", "1")
        assert await client.call("QUIT") == "OK"
        assert await client.ended() == ""


async def test_who_writes_a_command_wrongly_is_shown_how_it_is_written() -> None:
    """Without arguments, with an option there is none of, or by hand, as some write to a Redis."""
    async with serving() as box:
        client = await box.client()
        assert str(await client.failure("LOCK.RELEASE", "a")) == "USAGE LOCK.RELEASE name fence"
        told = str(await client.failure("LOCK.ACQUIRE", "a", "FOREVER"))
        assert told.startswith("USAGE no option 'FOREVER': LOCK.ACQUIRE name [WAIT ms]")
        told = str(await client.failure("GET", "a"))
        assert told == "ERR unknown command 'GET': this is a Fencehold server"
        client.writer.write(b"LOCK.ACQUIRE a\r\n")
        assert "bulk strings, as redis-cli" in await client.ended()


@both
async def test_a_name_is_acquired_and_released(version: int) -> None:
    """A grant tells all the names, the fence, the ttl and the time; a release with another fence is refused."""
    async with serving() as box:
        client = await box.client(version, session=5_000)
        grant = await client.map("lock.acquire", "orders", "wait", 0)
        assert grant == {
            "names": ["orders"],
            "name": "orders",
            "fence": 1,
            "ttl_ms": 5_000,
            "at": box.state.now_at,
            "own_ttl": 0,
        }
        assert await client.call("LOCK.ACQUIRE", "orders", "WAIT", 0) is None
        assert await client.refusal("LOCK.RELEASE", "orders", 7) == "NOTOWNER"
        assert await client.call("LOCK.RELEASE", "orders", 1) == "OK"
        assert await client.refusal("LOCK.RELEASE", "orders", 1) == "RELEASED"
        assert (await client.map("LOCK.ACQUIRE", "orders", "WAIT", 0))["fence"] == 2


@both
async def test_several_names_are_had_together_or_not_at_all(version: int) -> None:
    """LOCK.MACQUIRE, MEXTEND and MRELEASE work on all their names with one fence."""
    async with serving() as box:
        client = await box.client(version, session=5_000)
        grant = await client.map("LOCK.MACQUIRE", 2, "b", "a", "TTL", 700)
        assert (grant["names"], grant["name"], grant["fence"]) == (["b", "a"], "b", 1)
        assert (grant["ttl_ms"], grant["own_ttl"]) == (700, 1)
        assert await client.call("LOCK.MACQUIRE", 2, "c", "a", "WAIT", 0) is None
        extended = await client.map("LOCK.MEXTEND", 2, "a", "b", 1, 900)
        assert (extended["names"], extended["fence"], extended["ttl_ms"]) == (["a", "b"], 1, 900)
        assert await client.refusal("LOCK.MEXTEND", 2, "a", "c", 1, 900) == "RELEASED"
        assert await client.refusal("LOCK.MRELEASE", 2, "a", "c", 1) == "RELEASED"
        assert as_map((await client.call("LOCK.LIST"))[1][0])["name"] == "b"
        assert await client.call("LOCK.MRELEASE", 1, "b", 1) == "OK"
        assert await client.call("LOCK.LIST") == ["", []]


@both
async def test_a_hold_with_a_ttl_runs_out_unless_extended(version: int) -> None:
    """An extension counts from its own moment, 0 ties the hold to its session, and what ran out is EXPIRED."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        await client.call("LOCK.ACQUIRE", "a", "TTL", 100)
        await box.pass_time(60)
        extended = await client.map("LOCK.EXTEND", "a", 1, 100)
        assert (extended["at"], extended["ttl_ms"], extended["own_ttl"]) == (60, 100, 1)
        await box.pass_time(60)
        tied = await client.map("LOCK.EXTEND", "a", 1, 0)
        assert (tied["ttl_ms"], tied["own_ttl"]) == (50_000, 0)
        await box.pass_time(500)
        assert (await client.map("LOCK.EXTEND", "a", 1, 100))["fence"] == 1
        await box.pass_time(100)
        assert await client.refusal("LOCK.RELEASE", "a", 1) == "EXPIRED"
        assert await client.refusal("LOCK.EXTEND", "a", 1, 100) == "EXPIRED"
        if version == 3:
            assert await client.push() == ["lost", "a", 1, "expired", ""]


@pytest.mark.guarantee("G7")
async def test_a_repeated_extension_is_answered_as_the_first_time() -> None:
    """However late it is asked again, the end it tells is the one that was set then."""
    async with serving() as box:
        client = await box.client(3, session=50_000)
        await client.call("LOCK.ACQUIRE", "a", "TTL", 1_000, "REQUEST", 1)
        first = await client.map("LOCK.EXTEND", "a", 1, 1_000, "REQUEST", 2)
        await box.pass_time(400)
        again = await client.map("LOCK.EXTEND", "a", 1, 1_000, "REQUEST", 2)
        assert again == first
        assert again["at"] + again["ttl_ms"] == 1_000


@both
@pytest.mark.guarantee("G9")
async def test_a_repeated_request_is_answered_the_same(version: int) -> None:
    """A request id gives its first answer again until it is acknowledged, and then a usage error."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        first = await client.map("LOCK.ACQUIRE", "a", "REQUEST", 1)
        assert await client.map("LOCK.ACQUIRE", "a", "REQUEST", 1) == first
        assert await client.call("LOCK.RELEASE", "a", 1, "REQUEST", 2) == "OK"
        assert await client.call("LOCK.RELEASE", "a", 1, "REQUEST", 2) == "OK"
        assert (await client.map("LOCK.ACQUIRE", "b", "REQUEST", 3, "ANSWERED", 2))["fence"] == 2
        assert await client.refusal("LOCK.ACQUIRE", "a", "REQUEST", 1) == "USAGE"


@both
@pytest.mark.guarantee("G9")
async def test_a_request_id_used_for_two_kinds_of_command_is_a_usage_error(version: int) -> None:
    """What is remembered under the id is no answer to the other command, and the server continues to serve."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        await client.call("LOCK.ACQUIRE", "a", "REQUEST", 1)
        assert await client.refusal("LOCK.RELEASE", "a", 1, "REQUEST", 1) == "USAGE"
        assert await client.refusal("LOCK.EXTEND", "a", 1, 50, "REQUEST", 1) == "USAGE"
        assert await client.call("LOCK.RELEASE", "a", 1, "REQUEST", 2) == "OK"
        assert await client.refusal("LOCK.ACQUIRE", "b", "REQUEST", 2) == "USAGE"
        assert await client.refusal("LOCK.CANCEL", 2) == "USAGE"
        await client.call("LOCK.ACQUIRE", "c")
        other = await box.client(3, session=50_000)
        assert "queued" in await other.map("LOCK.ACQUIRE", "c", "REQUEST", 1, "ASYNC")
        assert await other.refusal("LOCK.RELEASE", "c", 1, "REQUEST", 1) == "USAGE"
        assert await other.call("PING") == "PONG"


@both
async def test_shared_holds_and_permits(version: int) -> None:
    """Readers share a name, permits are counted, and options that do not go together are refused."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        other = await box.client(version, session=50_000)
        for who in (client, other):
            assert (await who.map("LOCK.ACQUIRE", "r", "MODE", "s", "WAIT", 0))["name"] == "r"
            assert (await who.map("LOCK.ACQUIRE", "p", "LIMIT", 2, "WAIT", 0))["name"] == "p"
        assert await other.call("LOCK.ACQUIRE", "p", "LIMIT", 2, "WAIT", 0) is None
        assert await other.call("LOCK.ACQUIRE", "r", "WAIT", 0) is None
        assert await other.refusal("LOCK.ACQUIRE", "p", "LIMIT", 3, "WAIT", 0) == "USAGE"
        assert await other.refusal("LOCK.ACQUIRE", "p", "LIMIT", 2, "MODE", "X") == "USAGE"
        assert await other.refusal("LOCK.ACQUIRE", "p", "MODE", "P") == "USAGE"
        summaries = [as_map(summary) for summary in (await client.call("LOCK.LIST"))[1]]
        assert [(s["name"], s["mode"], s["holders"], s["fence"]) for s in summaries] == [
            ("p", "P", 2, 4),
            ("r", "S", 2, 3),
        ]


@both
async def test_a_broken_name_outranks_its_holder(version: int) -> None:
    """LOCK.BREAK ends the holds up to the fence named, and gives a fence above them all."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        operator = await box.client(version)
        await client.call("LOCK.ACQUIRE", "a")
        broken = await operator.map("LOCK.BREAK", "a")
        assert broken == {"name": "a", "fence": 2, "ended": [1]}
        if version == 3:
            assert (await client.push())[:4] == ["lost", "a", 1, "broken"]
        assert await client.refusal("LOCK.RELEASE", "a", 1) == "EXPIRED"
        assert (await client.map("LOCK.ACQUIRE", "a"))["fence"] == 3
        assert (await operator.map("LOCK.BREAK", "a", "FENCE", 1))["ended"] == []
        assert await client.call("LOCK.RELEASE", "a", 3) == "OK"


async def test_who_broke_a_hold_is_told_to_who_had_it() -> None:
    """By what the operator says, or else by its session; a client without either by its name and address."""
    async with serving() as box:
        client = await box.client(3, session=50_000)
        plain, named = await box.client(), await box.client()
        await named.call("CLIENT", "SETNAME", "cron")
        known = await box.client(3)
        await known.call("SESSION.OPEN", "TTL", 50_000, "META", '{"client":"ops"}')
        operators = {plain: "redis client", named: "cron", known: "ops"}
        for operator, name in operators.items():
            await client.call("LOCK.ACQUIRE", "a")
            await operator.call("LOCK.BREAK", "a")
            said = json.loads((await client.push())[4])
            assert said["client"] == name
            assert ("peer" in said) is (operator is not known)
        assert said == {"client": "ops"}
        await client.call("LOCK.ACQUIRE", "a")
        await known.call("LOCK.BREAK", "a", "BY", '{"user":"alice"}')
        assert (await client.push())[4] == '{"user":"alice"}'
        assert await plain.refusal("LOCK.BREAK", "a", "BY", 1_025 * "x") == "LIMIT"


@both
async def test_a_deadlock_names_the_whole_circle(version: int) -> None:
    """Who would close a circle is refused at once with every link of it as JSON."""
    async with serving() as box:
        one = await box.client(version, session=50_000)
        two = await box.client(version, session=50_000)
        await one.call("LOCK.ACQUIRE", "a", "OWNER", "ä1")
        await two.call("LOCK.ACQUIRE", "b", "OWNER", "o2")
        one.send("LOCK.ACQUIRE", "b", "OWNER", "ä1")
        await box.waiting(1)
        await box.pass_time(30)
        failed = await two.failure("LOCK.ACQUIRE", "a", "OWNER", "o2")
        assert failed.code == "DEADLOCK"
        circle = json.loads(failed.detail)["circle"]
        assert [(link["session"], link["owner"], link["name"], link["fence"]) for link in circle] == [
            (2, "o2", "a", 1),
            (1, "ä1", "b", 2),
        ]
        assert {link["since_ms_ago"] for link in circle} == {30}
        await two.call("LOCK.RELEASE", "b", 2)
        assert as_map(await one.reply())["fence"] == 3


@both
async def test_who_holds_and_who_waits_is_told(version: int) -> None:
    """LOCK.INFO tells of each hold and each waiter who, since when and how long still."""
    async with serving() as box:
        holder = await box.client(version)
        await holder.call("SESSION.OPEN", "TTL", 50_000, "META", '{"host":"a"}')
        waiter = await box.client(version, session=50_000)
        await holder.call("LOCK.ACQUIRE", "a", "TTL", 5_000, "OWNER", "o", "META", '{"task":1}', "DELAY", 400)
        await box.pass_time(100)
        waiter.send("LOCK.ACQUIRE", "a", "WAIT", 1_000, "MODE", "S")
        await box.waiting(1)
        await box.pass_time(50)
        info = await holder.map("LOCK.INFO", "a")
        assert [as_map(hold) for hold in info["holds"]] == [
            {
                "session": 1,
                "owner": "o",
                "fence": 1,
                "mode": "X",
                "limit": 0,
                "held_ms": 150,
                "left_ms": 4_850,
                "meta": '{"task":1}',
                "session_meta": '{"host":"a"}',
                "since_unix_ms": NOON,
                "age_ms": 150,
            }
        ]
        assert [as_map(waiting) for waiting in info["waiters"]] == [
            {
                "session": 2,
                "owner": "",
                "ticket": 1,
                "ahead": 0,
                "mode": "S",
                "names": ["a"],
                "waited_ms": 50,
                "left_ms": 950,
                "session_meta": "",
                "since_unix_ms": NOON + 100,
                "age_ms": 50,
            }
        ]
        assert (info["name"], info["delayed_ms"]) == ("a", 0)
        assert (info["fence"], info["hold_count"], info["waiter_count"]) == (1, 1, 1)
        assert (info["holds_cursor"], info["waiters_cursor"]) == (0, 0)
        await holder.call("LOCK.BREAK", "a")
        assert (await holder.map("LOCK.INFO", "a"))["delayed_ms"] == 400
        free = await holder.map("LOCK.INFO", "free")
        counts = dict.fromkeys(
            ("delayed_ms", "fence", "hold_count", "waiter_count", "holds_cursor", "waiters_cursor"), 0
        )
        assert free == {"name": "free", "holds": [], "waiters": [], "kept": [], **counts}


@both
async def test_a_name_asked_for_with_a_least_time_is_kept_for_it(version: int) -> None:
    """A release is answered at once; the name is granted when its time has passed, and LOCK.INFO says for whom."""
    async with serving() as box:
        runner = await box.client(version)
        await runner.call("SESSION.OPEN", "TTL", 50_000, "META", '{"host":"a"}')
        ran = ("LOCK.ACQUIRE", "job", "TTL", 5_000, "OWNER", "o", "META", "m", "ATLEAST", 2_000, "WAIT", 0)
        assert (await runner.map(*ran))["ttl_ms"] == 5_000
        await box.pass_time(100)
        assert await runner.call("LOCK.RELEASE", "job", 1) == "OK"
        assert await runner.call(*ran) is None
        info = await runner.map("LOCK.INFO", "job")
        assert info["holds"] == []
        assert [as_map(kept) for kept in info["kept"]] == [
            {
                "session": 1,
                "owner": "o",
                "fence": 1,
                "kept_ms": 100,
                "left_ms": 1_900,
                "meta": "m",
                "session_meta": '{"host":"a"}',
                "since_unix_ms": NOON,
                "age_ms": 100,
            }
        ]
        await runner.call("SESSION.CLOSE")
        waiter = await box.client(version, session=50_000)
        (_, names) = await waiter.call("LOCK.LIST")
        assert [as_map(name)["name"] for name in names] == ["job"]
        waiter.send("LOCK.ACQUIRE", "job")
        await box.waiting(1)
        await box.pass_time(1_899)
        await box.waiting(1)
        await box.pass_time(1)
        assert as_map(await waiter.reply())["fence"] == 2
        assert (await waiter.map("LOCK.INFO", "job"))["kept"] == []


@both
async def test_a_least_time_is_for_several_names_and_no_shares(version: int) -> None:
    """LOCK.MACQUIRE takes it, too; a break ends it; what is shared or counted is refused, and 0 is none."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        await client.call("LOCK.MACQUIRE", 2, "a", "b", "ATLEAST", 5_000)
        await client.call("LOCK.MRELEASE", 2, "a", "b", 1)
        assert await client.call("LOCK.ACQUIRE", "a", "WAIT", 0) is None
        assert (await client.map("LOCK.BREAK", "a"))["ended"] == [1]
        assert await client.call("LOCK.ACQUIRE", "a", "WAIT", 0)
        assert await client.call("LOCK.ACQUIRE", "b", "WAIT", 0) is None
        assert await client.refusal("LOCK.ACQUIRE", "c", "ATLEAST", 5, "MODE", "S") == "USAGE"
        assert await client.refusal("LOCK.ACQUIRE", "c", "ATLEAST", 5, "LIMIT", 2) == "USAGE"
        assert await client.refusal("LOCK.ACQUIRE", "c", "ATLEAST", 86_400_001) == "USAGE"
        assert await client.call("LOCK.ACQUIRE", "c", "ATLEAST", 0, "MODE", "S")


@both
async def test_names_are_listed_page_by_page(version: int) -> None:
    """Following the cursor gives every name in use once, in order, and an empty cursor at the end."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        for number in range(25):
            await client.call("LOCK.ACQUIRE", f"job:{number:02}")
        await client.call("LOCK.ACQUIRE", "other")
        cursor, pages = "", []
        while True:
            cursor, page = await client.call("LOCK.LIST", "PREFIX", "job:", "CURSOR", cursor, "COUNT", 10)
            pages.append([as_map(summary)["name"] for summary in page])
            if not cursor:
                break
        assert [len(page) for page in pages] == [10, 10, 5]
        assert [name for page in pages for name in page] == [f"job:{number:02}" for number in range(25)]
        assert len((await client.call("LOCK.LIST", "COUNT", 10**9))[1]) == 26
        assert len((await client.call("LOCK.LIST", "COUNT", 0))[1]) == 1


@both
async def test_a_list_tells_the_oldest_holder_of_each_name_if_asked(version: int) -> None:
    """As LOCK.INFO tells it; null where nobody holds the name."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        await client.call("LOCK.ACQUIRE", "free", "DELAY", 1_000, "TTL", 20)
        await client.call("LOCK.ACQUIRE", "read", "MODE", "S", "META", "first")
        await client.call("LOCK.ACQUIRE", "read", "MODE", "S", "META", "second")
        await box.pass_time(30)
        free, read = [as_map(summary) for summary in (await client.call("LOCK.LIST", "HOLD"))[1]]
        assert (free["name"], free["mode"], free["hold"]) == ("free", "", None)
        (first, _) = (await client.map("LOCK.INFO", "read"))["holds"]
        assert (read["name"], read["holders"]) == ("read", 2)
        assert as_map(read["hold"]) == as_map(first)
        assert as_map(first)["meta"] == "first"


@both
async def test_stale_readings_need_no_entry(version: int) -> None:
    """With STALE as the last word a reading is answered from what is there, and the journal does not move."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        await client.call("LOCK.ACQUIRE", "stale")
        assert len((await client.map("LOCK.INFO", "stale", "STALE"))["holds"]) == 1
        assert len((await client.map("LOCK.INFO", "stale"))["holds"]) == 1
        assert len((await client.call("LOCK.LIST", "PREFIX", "stale", "stale"))[1]) == 1
        assert len((await client.call("LOCK.LIST", "PREFIX", "stale"))[1]) == 1
        assert len((await client.call("SESSION.LIST", "STALE"))[1]) == 1
        assert await client.refusal("LOCK.INFO", "stale", "FRESH") == "USAGE"


@both
async def test_sessions_are_listed(version: int) -> None:
    """SESSION.LIST tells of each session whether somebody speaks for it and what hangs on it, but no secret."""
    async with serving() as box:
        client = await box.client(version, session=50_000, grace_ms=50_000)
        other = await box.client(version, session=9_000)
        await client.call("LOCK.ACQUIRE", "a")
        await client.call("LOCK.ACQUIRE", "r", "MODE", "S")
        await client.close()
        other.send("LOCK.ACQUIRE", "a")
        await box.waiting(1)
        await box.pass_time(70)
        looker = await box.client(version)
        listed = [as_map(session) for session in (await looker.call("SESSION.LIST"))[1]]
        assert listed[0] == {
            "session": 1,
            "connected": 0,
            "opened_ms_ago": 70,
            "expires_in_ms": 49_930,
            "holds": 2,
            "waits": 0,
            "principal": "",
            "meta": "",
            "since_unix_ms": NOON,
            "age_ms": 70,
        }
        assert (listed[1]["connected"], listed[1]["waits"], listed[1]["expires_in_ms"]) == (1, 1, 8_930)


@both
async def test_a_settled_answer_is_ok(version: int) -> None:
    """LOCK.SETTLE takes any number of requests, known or not, and is OK."""
    async with serving() as box:
        client = await box.client(version, session=50_000)
        assert await client.call("LOCK.SETTLE", 1, 2, 3) == "OK"
        assert await client.refusal("LOCK.SETTLE") == "USAGE"
        assert await client.refusal("LOCK.SETTLE", "x") == "USAGE"


@pytest.mark.parametrize(
    "words",
    [
        ["LOCK.RELEASE", "a", 1],
        ["LOCK.MRELEASE", 1, "a", 1],
        ["LOCK.EXTEND", "a", 1, 100],
        ["LOCK.CANCEL", 1],
        ["LOCK.SETTLE", 1],
        ["SESSION.KEEPALIVE"],
        ["SESSION.HELD", "a", 1],
        ["SESSION.CLOSE"],
    ],
)
async def test_without_a_session_there_is_nothing_to_speak_of(words: list[str | int]) -> None:
    """What only a session can have done is NOSESSION on a connection that has none."""
    async with serving() as box:
        client = await box.client()
        assert await client.refusal(*words) == "NOSESSION"


async def test_the_protocol_does_not_change_while_replies_are_due() -> None:
    """HELLO 3 behind a command that still waits is refused, so that no reply comes in a protocol not expected."""
    async with serving() as box:
        client = await box.client()
        client.send("LOCK.INFO", "a")
        client.send("HELLO", 3)
        assert isinstance(await client.reply(), list)
        with pytest.raises(Exception, match="USAGE the protocol version"):
            await client.reply()
        assert (await client.map("HELLO", 3))["proto"] == 3
