"""Logins: by secrets and tokens; failures cost time, and nothing else."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencehold import PermissionDenied, UsageError, aio
from fencehold.errors import Overloaded
from fencehold.security.admission import Admission, How, Known, Origin, Shown, WrongLogin
from fencehold.security.throttle import FIRST_DELAY_S, TURNED_AWAY_S, Bounds, Throttle
from fencehold.security.tokens import Line, Tokens, add, digest_of, new_token, read
from fencehold.server import Config, Server
from tests.unit.client.service import until
from tests.unit.doors.box import Client

SECRET = "correct horse battery staple"


async def check(user: str, secret: str) -> bool:
    return (user, secret) == ("alice", SECRET)


class Box:
    """A server that asks everybody, and how long logins that failed were made to wait."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.waits: list[float] = []
        self.denied: list[str] = []
        self.checked: list[str] = []
        server.door.admission = Admission(
            tokens=server.door.admission.tokens, check_user=self._check, throttle=Throttle(sleep=self.waits.append)
        )
        server.door.on_denied = lambda _, what, _why: self.denied.append(what)

    async def _check(self, user: str, secret: str) -> bool:
        self.checked.append(user)
        return await check(user, secret)

    async def client(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.server.port))


@asynccontextmanager
async def asking(tokens: Path | None = None) -> AsyncIterator[Box]:
    async with asyncio.timeout(30), Server(Config(port=0, auth=True, tokens=tokens)) as server:
        yield Box(server)
        await until(lambda: not server.door.connections)


def test_nobody_is_answered_before_it_is_known_who_asks() -> None:
    """But for what a client says first. Commands that do not exist are told so, as ever."""

    async def scenario() -> None:
        async with asking() as box:
            client = await box.client()
            for words in (
                ("LOCK.ACQUIRE", "a"),
                ("LOCK.LIST",),
                ("INFO",),
                ("HELLO", 3),
                ("NODE.LIST",),
                ("SESSION.OPEN",),
                ("POLICY.GET",),
            ):
                assert await client.refusal(*words) == "NOAUTH"
            assert await client.call("PING") == "PONG"
            assert await client.call("AUTH", "alice", SECRET) == "OK"
            assert (await client.map("HELLO", 3))["server"] == "fencehold"
            (connection,) = box.server.door.connections
            assert (connection.principal, connection.known_by) == ("alice", How.SECRET)
            await client.call("LOCK.LIST")
            await client.close()
            assert "LOCK.ACQUIRE" in box.denied

    asyncio.run(scenario())


def test_a_greeting_logs_in() -> None:
    """As the SDK does it, by the URL; a wrong secret is told in the same words as a wrong user."""

    async def scenario() -> None:
        async with asking() as box:
            url = f"127.0.0.1:{box.server.port}"
            async with (
                aio.connect(f"fencehold://alice:{SECRET.replace(' ', '%20')}@{url}") as client,
                client.lock("a"),
            ):
                pass
            told = set()
            for login in ("alice:wrong", "nobody:wrong"):
                with pytest.raises(PermissionDenied) as failed:
                    async with aio.connect(f"fencehold://{login}@{url}"):
                        pass
                told.add(str(failed.value))
            assert told == {"no such user, or another secret"}
            with pytest.raises(PermissionDenied, match="requires authentication"):
                async with aio.connect(f"fencehold://{url}"):
                    pass

    asyncio.run(scenario())


def test_the_login_is_in_the_environment_or_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no secret needs to stand in a URL."""
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "client.toml").write_text(f'[client]\nuser = "alice"\nsecret_file = "{tmp_path}/secret"\n')

    async def scenario() -> None:
        async with asking() as box:
            url = f"fencehold://127.0.0.1:{box.server.port}"
            async with aio.connect(url, config=tmp_path / "client.toml"):
                pass
            monkeypatch.setenv("FENCEHOLD_USER", "alice")
            monkeypatch.setenv("FENCEHOLD_SECRET_FILE", str(tmp_path / "secret"))
            async with aio.connect(url):
                pass
            monkeypatch.setenv("FENCEHOLD_SECRET", "wrong")
            with pytest.raises(PermissionDenied):
                async with aio.connect(url):
                    pass

    asyncio.run(scenario())


def test_failing_logins_sent_at_once_are_answered_in_order_and_one_by_one() -> None:
    """Each costs more time than the one before, and nothing that follows is looked at meanwhile."""

    async def scenario() -> None:
        async with asking() as box:
            client = await box.client()
            for number in range(5):
                client.send("AUTH", "alice", f"guess {number}")
                client.send("PING")
            client.send("AUTH", "alice", SECRET)
            client.send("ECHO", "in")
            for _ in range(5):
                with pytest.raises(Exception, match="WRONGPASS"):
                    await client.reply()
                assert await client.reply() == "PONG"
            assert [await client.reply(), await client.reply()] == ["OK", "in"]
            assert box.waits == [FIRST_DELAY_S * 2**power for power in range(5)]
            await client.close()

    asyncio.run(scenario())


def test_failures_take_time_on_the_clock_and_others_go_on_meanwhile() -> None:
    """Four guesses take as long as their delays together, also over four connections; who is in already notices
    nothing."""

    async def scenario() -> None:
        async with asking() as box:
            box.server.door.admission.throttle = Throttle()
            inside = await box.client()
            await inside.call("AUTH", "alice", SECRET)
            clients = [await box.client() for _ in range(4)]
            assert await clients[0].refusal("AUTH", "alice", "first") == "WRONGPASS"
            started_at = time.monotonic()
            guesses = [asyncio.create_task(client.refusal("AUTH", "alice", "guess")) for client in clients[1:]]
            worst = 0.0
            while not all(guess.done() for guess in guesses):
                asked_at = time.monotonic()
                await inside.call("PING")
                worst = max(worst, time.monotonic() - asked_at)
                await asyncio.sleep(0.01)
            assert time.monotonic() - started_at >= FIRST_DELAY_S * (2 + 4 + 8) * 0.9
            assert worst < 0.5
            for client in (inside, *clients):
                await client.close()

    asyncio.run(scenario())


def test_so_many_logins_of_one_address_may_wait() -> None:
    """Who comes beyond is turned away, unchecked and not at once; other addresses are not concerned."""

    async def scenario() -> None:
        gate, turned_away = asyncio.Event(), list[float]()

        def sleep(delay_s: float) -> object:
            if delay_s != TURNED_AWAY_S:
                return gate.wait()
            turned_away.append(delay_s)
            return None

        throttle = Throttle(Bounds(waiting_per_address_max=3), sleep=sleep)
        admission = Admission(check_user=check, throttle=throttle)
        wrong = Shown(user="alice", secret="wrong")
        waiting = [asyncio.create_task(admission.admit("10.0.0.1", wrong)) for _ in range(3)]
        await until(lambda: throttle._waiting == 3)
        with pytest.raises(Overloaded):
            await admission.admit("10.0.0.1", wrong)
        assert turned_away == [TURNED_AWAY_S]
        assert await admission.admit("10.0.0.2", Shown(user="alice", secret=SECRET)) == Known("alice", How.SECRET)
        gate.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [WrongLogin] * 3

    asyncio.run(scenario())


def test_so_many_wait_to_be_turned_away() -> None:
    """Clients that hang up and come again leave no more behind; who comes beyond is turned away at once."""

    async def scenario() -> None:
        gate = asyncio.Event()
        bounds = Bounds(waiting_per_address_max=0, turned_away_max=3)
        admission = Admission(check_user=check, throttle=Throttle(bounds, sleep=lambda _: gate.wait()))
        wrong = Shown(user="alice", secret="wrong")
        logins = [asyncio.create_task(admission.admit("10.0.0.1", wrong)) for _ in range(5)]
        await until(lambda: [login.done() for login in logins] == [False, False, False, True, True])
        logins[0].cancel()
        gate.set()
        outcomes = await asyncio.gather(*logins, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, *[Overloaded] * 4]
        assert admission.throttle._turned_away == 0

    asyncio.run(scenario())


class HandLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still until it is moved."""

    at_s = 1_000.0

    def time(self) -> float:
        return self.at_s


def test_failures_are_forgiven_though_addresses_are_looked_for_now_and_then() -> None:
    """All of them a second later at the most, by the next login from anywhere."""
    loop = HandLoop()

    async def scenario() -> None:
        throttle = Throttle(Bounds(forgiven_s=60), sleep=lambda _: None)

        async def fail(address: str) -> None:
            async with throttle.turn(address) as failed:
                failed()

        await fail("10.0.0.1")
        loop.at_s += 59.5
        await fail("10.0.0.2")
        assert throttle.delay_s("10.0.0.1") == FIRST_DELAY_S
        loop.at_s += 1.0
        async with throttle.turn("10.0.0.3"):
            pass
        assert not throttle.delay_s("10.0.0.1")
        assert throttle.delay_s("10.0.0.2") == FIRST_DELAY_S

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())


def test_an_ipv6_network_is_one_address() -> None:
    """A machine has as many of them as it likes."""

    async def scenario() -> None:
        waits: list[float] = []
        admission = Admission(check_user=check, throttle=Throttle(sleep=waits.append))
        for host in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:10.0.0.1", "10.0.0.1"):
            with pytest.raises(WrongLogin):
                await admission.admit(host, Shown(user="alice", secret="wrong"))
        assert waits == [0.1, 0.2, 0.1, 0.1, 0.2]

    asyncio.run(scenario())


def test_addresses_that_are_remembered_are_bounded() -> None:
    """The one that failed longest ago is forgotten first."""

    async def scenario() -> None:
        throttle = Throttle(Bounds(addresses_max=8), sleep=lambda _: None)
        for number in range(100):
            async with throttle.turn(f"10.0.0.{number}") as fail:
                fail()
        assert len(throttle._records) <= 8
        assert throttle.delay_s("10.0.0.99")
        assert not throttle.delay_s("10.0.0.1")

    asyncio.run(scenario())


def test_a_connection_that_has_a_session_stays_who_it_is() -> None:
    """What it holds is its owner's."""

    async def scenario() -> None:
        async with asking() as box:
            client = await box.client()
            await client.call("AUTH", "alice", SECRET)
            await client.call("SESSION.OPEN", "TTL", 1_000)
            assert await client.refusal("AUTH", "alice", SECRET) == "USAGE"
            await client.close()

    asyncio.run(scenario())


def test_a_service_shows_its_token(tmp_path: Path) -> None:
    """By AUTH, by a greeting, by the environment; what is kept of it is a hash, in a file that can be changed."""
    file, token = tmp_path / "tokens", new_token()
    add(file, Line("ci-runner", digest_of(token)))
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600

    async def scenario() -> None:
        async with asking(file) as box:
            client = await box.client()
            assert await client.refusal("AUTH", "token", token[:-1]) == "WRONGPASS"
            assert await client.refusal("AUTH", "token", "") == "WRONGPASS"
            assert await client.refusal("AUTH", "ci-runner", token) == "WRONGPASS"
            assert await client.call("AUTH", "token", token) == "OK"
            assert [(each.principal, each.known_by) for each in box.server.door.connections] == [
                ("ci-runner", How.TOKEN)
            ]
            await client.close()
            async with aio.connect(f"fencehold://token:{token}@127.0.0.1:{box.server.port}"):
                pass
            file.write_text("")
            again = await box.client()
            assert await again.refusal("AUTH", "token", token) == "WRONGPASS"
            file.write_text("half a li")
            other = new_token()
            assert await again.refusal("AUTH", "token", other) == "WRONGPASS"
            file.write_text(f"# renewed\n{Line('ci-runner', digest_of(other))}\n")
            assert await again.call("AUTH", "token", other) == "OK"
            await again.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "line", ["alice", "alice sha256:00", "alice md5:" + "0" * 64, "al\0ice sha256:" + "0" * 64, "a sha256:x b c d"]
)
def test_a_file_of_tokens_that_is_wrong_says_in_which_line(tmp_path: Path, line: str) -> None:
    """And nothing of what stands there."""
    file = tmp_path / "tokens"
    file.write_text(f"# tokens\n{line}\n")
    with pytest.raises(UsageError, match="line 2: a token is written") as failed:
        read(file)
    assert line not in str(failed.value)


def test_a_token_expires(tmp_path: Path) -> None:
    """When its line says so."""
    file, token = tmp_path / "tokens", new_token()
    file.write_text(f"ci sha256:{digest_of(token)} 2020-01-01T00:00:00Z\n")
    assert Tokens(file).find(digest_of(token)) is None
    file.write_text(f"ci sha256:{digest_of(token)} 2999-01-01T00:00:00Z\n")
    line = Tokens(file).find(digest_of(token))
    assert line is not None
    assert line.principal == "ci"


def test_what_is_shown_is_in_no_repr() -> None:
    """Of anything that carries it."""
    assert SECRET not in repr(Shown(user="alice", secret=SECRET, token=SECRET))


def test_a_check_that_fails_lets_nobody_in() -> None:
    """And the client is told so, and does not wait for ever."""

    async def broken(user: str, secret: str) -> bool:
        raise RuntimeError("a bug")

    async def scenario() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asking() as box:
            box.server.door.admission.check_user = broken
            client = await box.client()
            assert await client.refusal("AUTH", "alice", SECRET) == "UNAVAILABLE"
            assert await client.refusal("LOCK.LIST") == "NOAUTH"
            await client.close()
        gc.collect()
        assert complaints

    asyncio.run(scenario())


def test_who_was_right_a_moment_ago_waits_for_nobody() -> None:
    """Not even behind those who guess from the same address; and guessing does not get faster by it."""

    async def scenario() -> None:
        gate = asyncio.Event()
        admission = Admission(
            check_user=check,
            recall=lambda user, secret: (user, secret) == ("alice", SECRET),
            throttle=Throttle(sleep=lambda _: gate.wait()),
        )
        guess = asyncio.create_task(admission.admit("10.0.0.1", Shown(user="alice", secret="wrong")))
        await asyncio.sleep(0)
        known = await admission.admit("10.0.0.1", Shown(user="alice", secret=SECRET))
        assert (known.principal, guess.done()) == ("alice", False)
        gate.set()
        with pytest.raises(WrongLogin):
            await guess

    asyncio.run(scenario())


async def test_a_listener_speaks_for_others_by_a_token_of_its_own(tmp_path: Path) -> None:
    """For clients, by their principals; no other token does, nor a secret, and nobody speaks for a listener."""
    listener, other, file = new_token(), new_token(), tmp_path / "tokens"
    add(file, Line("listener/edge", digest_of(listener)))
    add(file, Line("edge", digest_of(other)))
    admission = Admission(tokens=Tokens(file), check_user=check, throttle=Throttle(sleep=lambda _: None))
    known = await admission.admit("1.2.3.4", Shown(user="for:ann", secret=listener))
    assert (known.principal, known.how) == ("ann", How.LISTENER)
    # What ends with the listener's token ends for whom it speaks, too.
    assert known.digest == digest_of(listener)
    spiffe = "spiffe://example.org/billing"
    assert (await admission.admit("1.2.3.4", Shown(user=f"for:{spiffe}", secret=listener))).principal == spiffe
    for user, secret in (
        ("for:ann", other),
        ("for:alice", SECRET),
        ("for:ann", ""),
        ("for:", listener),
        ("for:token", listener),
        ("for:listener/edge", listener),
        ("for:an n", listener),
    ):
        with pytest.raises(WrongLogin):
            await admission.admit("1.2.3.4", Shown(user=user, secret=secret))


class _Turns(Throttle):
    """A throttle that notes whose time it takes, and takes none."""

    def __init__(self) -> None:
        super().__init__(sleep=lambda _: None)
        self.addresses: list[str] = []

    def turn(self, address: str) -> Any:
        self.addresses.append(address)
        return super().turn(address)


async def test_a_listener_of_the_node_hears_whether_it_leads_and_nothing_else() -> None:
    """By its key it is greeted, and stays nobody; another key greets nobody, whatever it is shown as."""
    async with Server(Config(port=0, auth=True)) as server:
        server.door.admission.own_listeners = frozenset({digest_of("its-key")})
        own = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        greeting = await own.map("HELLO", 3, "AUTH", "for:", "its-key")
        assert greeting["role"] == "leader"
        for words in (["LOCK.LIST"], ["INFO"], ["LOCK.ACQUIRE", "x"], ["SESSION.OPEN", "TTL", "9"], ["NODE.LIST"]):
            assert await own.refusal(*words) == "NOAUTH", words
        assert (await own.map("WHOAMI"))["principal"] == ""
        for login in (("for:", "other"), ("for:ann", "its-key"), ("token", "its-key"), ("for:", "")):
            stranger = Client(*await asyncio.open_connection("127.0.0.1", server.port))
            assert await stranger.refusal("HELLO", 3, "AUTH", *login) in ("USAGE", "NOAUTH", "WRONGPASS"), login
            assert await stranger.refusal("LOCK.LIST") == "NOAUTH"
            await stranger.close()
        await own.close()


async def test_failures_through_a_listener_cost_the_address_they_came_from(tmp_path: Path) -> None:
    """A listener says where a login comes from: one of the node's own, by its key, or one that has a token."""
    own, token, file = new_token(), new_token(), tmp_path / "tokens"
    add(file, Line("listener/edge", digest_of(token)))
    turns = _Turns()
    admission = Admission(tokens=Tokens(file), check_user=check, throttle=turns)
    admission.own_listeners = frozenset([digest_of(own)])
    for key in (own, token):
        with pytest.raises(WrongLogin):
            await admission.admit("10.0.0.1", Shown(user="from:192.0.2.7 alice", secret=f"{key} guessed"))
        known = await admission.admit("10.0.0.1", Shown(user="from:192.0.2.8 alice", secret=f"{key} {SECRET}"))
        assert (known.principal, known.how) == ("alice", How.SECRET)
    assert turns.addresses == ["192.0.2.7", "192.0.2.8"] * 2
    spoken = await admission.admit("10.0.0.1", Shown(user="from:2001:db8::1 for:ann", secret=f"{own} {token}"))
    assert (spoken.principal, spoken.how, turns.addresses[-1]) == ("ann", How.LISTENER, "2001:db8::/64")


async def test_what_a_listener_says_of_an_address_is_nothing_else(tmp_path: Path) -> None:
    """A zone of IPv6 could be any text of any length: what is written down is the address, in its one form."""
    admission, own = Admission(check_user=check), new_token()
    admission.own_listeners = frozenset([digest_of(own)])
    for said, origin in (
        ("192.0.2.7", Origin("192.0.2.7", is_passed_on=True)),
        ("192.0.2.7=", Origin("192.0.2.7", is_passed_on=True, is_alone=True)),
        (f"FE80:0::1%{'x' * 900}", Origin("fe80::1", is_passed_on=True)),
        ('"}', Origin("10.0.0.1")),
    ):
        shown = Shown(user=f"from:{said} alice", secret=f"{own} {SECRET}")
        assert admission.origin_of("10.0.0.1", shown)[0] == origin


async def test_nobody_else_is_believed_where_a_login_comes_from(tmp_path: Path) -> None:
    """The login is looked at as any other: whose time it takes is the address of the connection."""
    own, token, file = new_token(), new_token(), tmp_path / "tokens"
    add(file, Line("edge", digest_of(token)))
    turns = _Turns()
    admission = Admission(tokens=Tokens(file), check_user=check, throttle=turns)
    admission.own_listeners = frozenset([digest_of(own)])
    for user, key in (
        ("from:192.0.2.7 alice", token),
        ("from:192.0.2.7 alice", new_token()),
        ("from:192.0.2.7 alice", ""),
        ("from:elsewhere alice", own),
        ("from:192.0.2.7== alice", own),
        ("from: alice", own),
    ):
        assert (await admission.admit("10.0.0.1", Shown(user=user, secret=f"{key} {SECRET}"))).principal == "alice"
        with pytest.raises(WrongLogin):
            await admission.admit("10.0.0.1", Shown(user=user, secret=f"{key} guessed"))
    assert set(turns.addresses) == {"10.0.0.1"}
    # By the key of the node's own listeners addresses are passed on, and nothing else: it is nobody's token.
    for user, secret in (("from:192.0.2.7 for:ann", f"{own} {own}"), ("for:ann", own), ("token", own)):
        with pytest.raises(WrongLogin):
            await admission.admit("10.0.0.1", Shown(user=user, secret=secret))


async def test_a_login_of_nobody_that_is_passed_on_is_wrong() -> None:
    """It is not taken for a client that shows nothing, who is let in as nobody, at once."""
    own, turns = new_token(), _Turns()
    admission = Admission(check_user=check, throttle=turns)
    admission.own_listeners = frozenset([digest_of(own)])
    for key in (own, new_token()):
        with pytest.raises(WrongLogin):
            await admission.admit("10.0.0.1", Shown(user="from:192.0.2.7 ", secret=f"{key} guessed"))
    assert turns.addresses == ["10.0.0.1"] * 2
