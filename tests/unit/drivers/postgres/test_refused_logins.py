"""Connections that a server refuses: who is not let in, and who only came at a bad time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from fencehold import PermissionDenied, Unavailable, aio
from fencehold.drivers.postgres.failures import is_denied
from fencehold.engines.postgres.address import PostgresJournalAddress
from fencehold.engines.postgres.journal import connection_to
from fencehold.errors import FenceholdError, NotAdmitted

FAILED = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '
_NEGOTIATIONS = (80_877_103, 80_877_104)
"""Requests for TLS, and for GSSAPI's encryption, which come before the first message."""


@pytest.mark.parametrize(
    "words",
    [
        'FATAL:  password authentication failed for user "app"',
        'FATAL:  Peer authentication failed for user "app"',
        "fe_sendauth: no password supplied",
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "app", database "locks", no encryption',
        'FATAL:  permission denied for database "locks"',
        'FATAL:  role "app" does not exist',
        'FATAL:  database "locks" does not exist',
    ],
)
def test_words_of_a_refusal_are_known(words: str) -> None:
    """A server that speaks English is not asked again."""
    assert asyncio.run(is_denied(psycopg.OperationalError(FAILED + words), {"host": "nobody.invalid"}, 5))


@pytest.mark.parametrize("words", ["Connection refused\n\tIs the server running on that host?", "timeout expired"])
def test_who_was_not_answered_is_not_refused(words: str) -> None:
    """There is nobody to be asked again."""
    assert not asyncio.run(is_denied(psycopg.OperationalError(FAILED + words), {"host": "nobody.invalid"}, 5))


@asynccontextmanager
async def refusing(severity: str, code: str, words: str) -> AsyncIterator[int]:
    """A server that says one thing to whoever connects; yields its port."""
    fields = b"".join(f"{kind}{said}\0".encode() for kind, said in (("S", severity), ("C", code), ("M", words)))
    error = b"E" + (len(fields) + 5).to_bytes(4, "big") + fields + b"\0"

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(8)
            if int.from_bytes(head[4:], "big") not in _NEGOTIATIONS:
                break
            writer.write(b"N")
        await reader.readexactly(int.from_bytes(head[:4], "big") - 8)
        writer.write(error)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


SAID: list[tuple[str, str, str, type[FenceholdError]]] = [
    ("FATAL", "28P01", "Passwort-Authentifizierung für Benutzer »app« fehlgeschlagen", PermissionDenied),
    ("ВАЖНО", "28000", "в pg_hba.conf нет записи для компьютера", PermissionDenied),
    ("FATAL", "42501", "droit refusé pour la base de données « locks »", PermissionDenied),
    ("FATAL", "53300", "tut mir leid, schon zu viele Verbindungen", Unavailable),
    ("FATAL", "57P03", "データベースシステムは起動しています", Unavailable),
]


@pytest.mark.parametrize(("severity", "code", "words", "kind"), SAID)
def test_a_refusal_is_known_in_every_language(
    severity: str, code: str, words: str, kind: type[FenceholdError]
) -> None:
    """It is the code that tells; the words are told as the server said them."""

    async def main() -> None:
        async with refusing(severity, code, words) as port:
            with pytest.raises(kind, match=words) as refused:
                await aio.connect(f"postgresql://app:secret@127.0.0.1:{port}/locks")
            assert type(refused.value) is kind
            assert "secret" not in str(refused.value)

    asyncio.run(main())


@pytest.mark.parametrize(("severity", "code", "words", "kind"), SAID)
def test_a_journal_that_is_refused_is_known_in_every_language(
    severity: str, code: str, words: str, kind: type[FenceholdError]
) -> None:
    """A node that is not let in can say so, and end."""
    expected: Any = NotAdmitted if kind is PermissionDenied else Unavailable

    async def main() -> None:
        async with refusing(severity, code, words) as port:
            connection = connection_to(
                PostgresJournalAddress.parse(f"postgresql://app:secret@127.0.0.1:{port}/locks"),
                statement_timeout_s=1,
            )
            with pytest.raises(Unavailable, match=words) as refused:
                await connection.ask("SELECT 1", until=asyncio.get_running_loop().time() + 5)
            assert type(refused.value) is expected
            await connection.end()

    asyncio.run(main())
