"""Connections: tails outlive a server, TLS is taken, any event loop will do."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
import uvloop

from fencehold.engines.postgres.address import PostgresJournalAddress
from fencehold.engines.postgres.journal import connection_to
from fencehold.errors import Damaged, OutcomeUnknown, Unavailable
from fencehold.types import Position
from tests.contract.engines.postgres import fresh_schema, server
from tests.contract.harness import fill, leading, opened, read_all, run
from tests.unit.engines.postgres.stage import LONG, SHORT, journal_at

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("postgres")]


@pytest.fixture
def authority(tmp_path: Path, postgres: None) -> Iterator[Path]:
    """The certificate of whoever signed the server's, which takes TLS as long as this lasts."""
    signer = trustme.CA()
    pair = signer.issue_cert("127.0.0.1")
    folder = server().folder
    pair.private_key_pem.write_to_path(str(folder / "key.pem"))
    pair.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    signer.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("key.pem", "cert.pem"):
        server().give(folder / name)
        (folder / name).chmod(0o600)
    settings = {"ssl_key_file": f"{folder}/key.pem", "ssl_cert_file": f"{folder}/cert.pem", "ssl": "on"}
    for setting, value in settings.items():
        server().set(setting, value)
    yield tmp_path / "ca.pem"
    for setting in reversed(settings):
        server().set(setting, None)


def test_tls_is_taken_and_the_server_is_known_by_its_certificate(authority: Path, tmp_path: Path) -> None:
    """libpq's options do what they say, and a connection under TLS is kept, not made anew for each call."""
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema, sslmode="verify-full", sslrootcert=str(authority))) as (
            journal,
            epoch,
        ):
            assert await fill(journal, epoch, range(1, 4)) == await read_all(journal)
        with pytest.raises(Unavailable, match="certificate"):
            await journal_at(schema, sslmode="verify-full", sslrootcert=str(stranger)).open()
        url = server().url(schema, sslmode="verify-full", sslrootcert=str(authority))
        connection = connection_to(PostgresJournalAddress.parse(url), statement_timeout_s=5)
        until = asyncio.get_running_loop().time() + 10
        question = "SELECT pid, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        told = [await connection.ask(question, until=until) for _ in range(5)]
        assert told == [told[0]] * 5
        assert told[0][0][1] is True
        connection.cut()
        await connection.end()

    run(work())


def test_a_tail_goes_on_after_its_server_came_back() -> None:
    """The server is killed and recovers: the same tail hands out what follows, each entry once."""

    async def work() -> None:
        schema = fresh_schema()
        async with (
            leading(journal_at(schema, bounds=LONG)) as (journal, epoch),
            opened(journal_at(schema, bounds=LONG)) as standby,
        ):
            tail = aiter(standby.tail(Position(0)))
            records = await fill(journal, epoch, range(1, 6))
            assert [await anext(tail) for _ in range(5)] == records
            server().kill()
            following = asyncio.ensure_future(anext(tail))
            await asyncio.sleep(0)
            server().restart()
            records += await fill(journal, epoch, range(6, 11))
            assert [await following, *[await anext(tail) for _ in range(4)]] == records[5:]

    run(work())


def test_a_tail_that_nobody_answers_says_so() -> None:
    """It does not wait for ever in silence, and closing is possible all the same."""

    async def work() -> None:
        async with leading(journal_at(fresh_schema(), bounds=SHORT)) as (journal, epoch):
            await fill(journal, epoch, [1])
            server().kill()
            try:
                with pytest.raises(Unavailable):
                    await anext(aiter(journal.tail(Position(1))))
            finally:
                server().restart()

    run(work())


@pytest.mark.guarantee("G12")
def test_a_tail_is_not_taken_to_another_journal() -> None:
    """What it handed out is not there any more, as after a standby took over that never had it: it says so."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema)) as (journal, epoch):
            tail = aiter(journal.tail(Position(0)))
            records = await fill(journal, epoch, range(1, 4))
            assert [await anext(tail) for _ in range(3)] == records
            server().sql(f"UPDATE {schema}.entries SET epoch = 0 WHERE position = 3")
            with pytest.raises(Damaged, match="never had it"):
                await anext(tail)

    run(work())


def test_it_runs_on_uvloop() -> None:
    """The server's loop: appends, reads, a tail, and a server that says nothing."""

    async def work() -> None:
        schema = fresh_schema()
        async with leading(journal_at(schema, bounds=SHORT)) as (journal, epoch):
            tail = aiter(journal.tail(Position(0)))
            records = await fill(journal, epoch, range(1, 21))
            assert await read_all(journal) == [await anext(tail) for _ in range(20)] == records
            server().pause()
            try:
                with pytest.raises(OutcomeUnknown):
                    await journal.append(b"unheard", epoch=epoch, position=Position(21))
            finally:
                server().resume()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work(), 30))
