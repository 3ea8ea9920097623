"""Clients of several cells: names go to their homes, by a session in each; homes move, lapse and are lost."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fencehold
from fencehold import aio
from fencehold.cli import cell_wires
from fencehold.cli.app import build
from fencehold.client import connect
from fencehold.client.config import Config as ClientConfig
from fencehold.core.state import State
from fencehold.drivers.address import Endpoint, service_address
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Unavailable, UsageError
from fencehold.node.suspicion import Patience
from fencehold.placement.cells import Cell, CellMap
from fencehold.server import Config, Server
from tests.unit.node.doubles import until
from tests.unit.node.test_slot_mover import SHARDS, moved_on

QUICK = Patience(leader_timeout_s=0.3, confirm_s=0.1, stagger_s=0.1)


async def operate(server: Server, *words: str, code: int = 0) -> str:
    """Run the command line against a cell; what it wrote."""

    def call() -> str:
        result = CliRunner().invoke(build(list(words)), list(words), env={"FENCEHOLD_URL": url_of(server)})
        assert result.exit_code == code, f"{words}: {result.output} {result.exception!r}"
        return result.output

    return await asyncio.to_thread(call)


def url_of(server: Server) -> str:
    return f"fencehold://127.0.0.1:{server.port}"


def map_of(tmp_path: Path, homes: str, lease: str = "", **cells: tuple[Server, ...]) -> str:
    path = tmp_path / "cells.toml"
    listed = "".join(
        f"[cells.{name}]\naddresses = {[f'127.0.0.1:{each.port}' for each in servers]}\n"
        for name, servers in cells.items()
    )
    path.write_text((f'lease = "{lease}"\n' if lease else "") + listed + f"[homes]\n{homes}\n")
    return str(path)


@asynccontextmanager
async def two_cells(
    tmp_path: Path, homes: str, lease: str = "", shards: int = 1
) -> AsyncIterator[tuple[Server, Server]]:
    async with Server(Config(port=0, shards=shards)) as eu, Server(Config(port=0)) as us:
        await operate(eu, "cells", "apply", map_of(tmp_path, homes, lease, eu=(eu,), us=(us,)))
        yield eu, us


async def test_names_go_to_their_homes_with_a_session_in_each_cell_that_is_used(tmp_path: Path) -> None:
    """Whichever cell is connected to; one that no name was asked of has no session."""
    async with two_cells(tmp_path, '"" = "eu"\n"us." = "us"') as (eu, us):
        for near in (eu, us):
            async with aio.connect(url_of(near)) as client:
                far = us if near is eu else eu
                async with client.lock("a" if near is eu else "us.a", timeout=10):
                    assert not far.node.replica.machine.state.sessions
                async with client.lock("a", timeout=10), client.lock("us.a", timeout=10):
                    assert set(eu.node.replica.machine.state.held) == {"a"}
                    assert set(us.node.replica.machine.state.held) == {"us.a"}
                    assert (await client.explain("us.a")).holders
                with pytest.raises(UsageError, match="at home in the cells eu, us"):
                    await client.multi(["a", "us.a"], timeout=1).acquire()


async def test_an_acquire_that_crosses_a_close_connects_to_no_other_cell(tmp_path: Path) -> None:
    """A task that has not seen the close opens no session in an unused cell: nobody would end it."""
    async with two_cells(tmp_path, '"" = "eu"\n"us." = "us"', shards=2) as (eu, us):
        client = await aio.connect(url_of(eu))
        for name in ("a", "b"):
            async with client.lock(name, timeout=10):
                pass
        late = client.lock("us.a", timeout=10)
        closing = asyncio.create_task(client.close())
        # It runs when the close has begun, and waits for the session of the other shard to end.
        acquiring = asyncio.create_task(late.acquire())
        with pytest.raises(UsageError, match="the client is closed"):
            await acquiring
        await closing
        await until(lambda: not us.node.replica.machine.state.sessions)


async def test_a_blocking_client_and_one_that_connects_lazily_are_routed_too(tmp_path: Path) -> None:
    """A thread asks by itself until it hears that there are cells."""
    async with two_cells(tmp_path, '"" = "eu"\n"us." = "us"') as (eu, us):

        def work(lazy: bool) -> int:
            with fencehold.connect(url_of(eu), lazy=lazy) as client, client.lock("us.a", timeout=10) as hold:
                assert "us.a" in us.node.replica.machine.state.held
                return hold.fence

        assert await asyncio.to_thread(work, True) < await asyncio.to_thread(work, False)


def _version(state: State) -> int:
    return 0 if state.cells is None else state.cells.records[""].version


async def test_a_home_moves_while_it_is_held_and_awaited_and_nothing_is_lost(tmp_path: Path) -> None:
    """The holder keeps its hold and releases it where it is; who waited is granted in the new home, above."""
    async with two_cells(tmp_path, '"" = "eu"\n"us." = "us"', shards=2) as (eu, us):
        async with aio.connect(url_of(eu)) as one, aio.connect(url_of(us)) as other:
            hold = await one.lock("a", timeout=10).acquire()
            assert hold is not None
            waiting = asyncio.create_task(other.lock("a", timeout=60).acquire())
            moving = asyncio.create_task(operate(us, "home", "move", "", "--to", "us"))
            # Closed in both shards of the old home: before that it would grant the name to who waits, there.
            await until(lambda: all(_version(host.node.replica.machine.state) > 1 for host in eu.hosts))
            hold.check()
            assert not waiting.done()
            await hold.release()
            await moving
            after = await waiting
            assert after is not None
            assert after.fence > hold.fence
            assert "a" in us.node.replica.machine.state.held
            await after.release()
            async with one.lock("a", timeout=10) as again:
                assert again.fence > after.fence
            # Told twice, it is done; and back.
            await operate(eu, "home", "move", "", "--to", "us")
            await operate(eu, "home", "move", "", "--to", "eu", "--force")
            async with one.lock("a", timeout=10) as back:
                assert back.fence > again.fence


async def test_a_cell_that_is_away_costs_its_own_names_only_and_another_is_promoted(tmp_path: Path) -> None:
    """The reason is said, soon at once; after a promotion the same client goes to the new home, above."""
    async with two_cells(tmp_path, '"" = "eu"\n"us." = "us"') as (eu, us):
        async with aio.connect(url_of(eu), connect_timeout=0.5) as client:
            async with client.lock("us.a", timeout=10) as hold:
                before = hold.fence
            await us.stop()
            for _ in range(2):
                with pytest.raises(Unavailable, match="cell us"):
                    await client.lock("us.a", timeout=5).acquire()
            async with client.lock("a", timeout=10):
                pass
            refused = await operate(eu, "home", "promote", "us.", "--to", "eu", code=2)
            assert "--switched-off" in refused
            await operate(eu, "home", "promote", "us.", "--to", "eu", "--switched-off", "--hold-ttl", "0")
            async with client.lock("us.a", timeout=10) as hold:
                assert hold.fence > before + 2**20
            assert '"out": true' in await operate(eu, "cells", "show", "--json")


async def test_a_leased_home_that_reaches_no_other_cell_stops_granting(
    tmp_path: Path,
) -> None:
    """Its own names are refused with the reason, sessions that held some end; others in the same cell go on."""
    homes = '"" = "eu"\n"pay." = { cell = "eu", goal = "region" }'
    async with two_cells(tmp_path, homes, lease="1s") as (eu, us):
        state = eu.node.replica.machine.state
        async with aio.connect(url_of(eu)) as client:
            await until(lambda: state.cells is not None and not state.cells.lapsed)
            hold = await client.lock("pay.a", timeout=10).acquire()
            assert hold is not None
            await us.stop()
            await until(lambda: eu.node.replica.machine.state.cells.lapsed == {"pay."})  # type: ignore[union-attr]
            with pytest.raises(fencehold.HoldLost):
                while True:
                    hold.check()
                    await asyncio.sleep(0.01)
            with pytest.raises(Unavailable, match="it may be cut off"):
                await client.lock("pay.b", timeout=0).acquire()
            async with client.lock("a", timeout=10):
                pass


async def test_a_failover_within_a_cell_ends_no_lease(tmp_path: Path) -> None:
    """The node that takes over was confirmed by itself before: what is held stays held."""
    store = MemoryStore()
    homes = '"" = { cell = "eu", goal = "region" }'

    def node(name: str) -> Server:
        return Server(Config(node=name, port=0, patience=QUICK), journal=MemoryJournal(store))

    async with Server(Config(port=0)) as us, node("a") as first, node("b") as second:
        await until(lambda: first.node.leads and second.node.role == "standby")
        await operate(us, "cells", "apply", map_of(tmp_path, homes, "4s", eu=(first, second), us=(us,)))
        async with aio.connect(f"{url_of(first)},127.0.0.1:{second.port}") as client:
            await until(lambda: not first.node.replica.machine.state.cells.lapsed)  # type: ignore[union-attr]
            hold = await client.lock("a", timeout=10).acquire()
            assert hold is not None
            await until(second.keeper.covers_all)
            await first.stop()
            await until(lambda: second.node.leads)
            async with client.lock("b", timeout=30) as after:
                assert after.fence > hold.fence
            hold.check()
            assert not second.node.replica.machine.state.cells.lapsed  # type: ignore[union-attr]


async def test_a_goal_that_cannot_be_reached_is_refused_when_it_is_planned(tmp_path: Path) -> None:
    """It says what is missing; a server may say what its engine spans, and is believed; nothing was changed."""
    async with Server(Config(port=0)) as eu, Server(Config(port=0, spans="zone")) as us:
        file = map_of(tmp_path, '"" = "eu"\n"us." = { cell = "us", goal = "zone" }', eu=(eu,), us=(us,))
        assert "found 2 cells" in await operate(eu, "cells", "plan", file)
        file = map_of(tmp_path, '"" = { cell = "eu", goal = "zone" }', eu=(eu,), us=(us,))
        assert "not said to be spread over zones" in await operate(eu, "cells", "apply", file, code=2)
        file = map_of(tmp_path, '"" = { cell = "us", goal = "region" }', eu=(eu,), us=(us,))
        assert "have a lease" in await operate(eu, "cells", "plan", file, code=2)
        assert eu.node.replica.machine.state.cells is None
        assert "not a cell yet" in await operate(eu, "cells", "show", code=2)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("FENCEHOLD_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("is_near", [True, False])
async def test_who_observes_an_election_hears_of_its_shard_in_the_cell_of_its_name(
    tmp_path: Path, is_near: bool
) -> None:
    """Whichever cell is connected to, and wherever in its cell the name has moved to."""
    async with two_cells(tmp_path, '"" = "eu"\n"us." = "us"', shards=SHARDS) as (eu, us):
        async with (
            aio.connect(url_of(eu if is_near else us)) as client,
            aio.connect(url_of(eu)) as other,
            contextlib.aclosing(client.election("a").observe()) as leaders,
        ):
            assert await anext(leaders) is None
            for _ in range(2):
                term = await other.election("a").campaign()
                assert term is not None
                seen = await anext(leaders)
                assert seen is not None
                assert seen.fence == term.fence
                await term.release()
                assert await anext(leaders) is None
                await moved_on(eu, "a")


@pytest.mark.parametrize("login", ["ann:p#1", "ann:p%231", "ann:a%2Fb", ":t"])
def test_another_cell_is_shown_the_login_of_the_url(login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever characters it has; by the client and by the command."""
    url, other = f"fencehold://{login}@near:1", ("far:2", "[::1]:3")
    reached: list[str] = []
    monkeypatch.setattr(connect, "carrier_of", lambda source: reached.append(source.url))
    monkeypatch.setattr(connect, "channel_of", lambda _: True)
    connect._cell_carrier(connect.plan_of(ClientConfig(url=url)).first, Cell("us", other))
    monkeypatch.setattr(cell_wires, "ShardWires", lambda url, **_: reached.append(url))
    wires = cell_wires.CellWires(url)
    wires.know(CellMap(1, (Cell("us", other),), ()))
    wires._of("us")
    expected = service_address(url)._replace(endpoints=(Endpoint("far", 2), Endpoint("::1", 3)))
    assert [service_address(each) for each in reached] == [expected] * 2
