"""The audit log: derived from what was applied, chained by hashes, bounded, and in nobody's way."""

import asyncio
import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencehold import aio
from fencehold.core.commands import (
    Acquire,
    Break,
    BreakAs,
    ChangePolicy,
    Entry,
    OpenSession,
    OpenSessionAs,
    Release,
)
from fencehold.core.machine import Machine
from fencehold.core.policy import PolicyChange, Role, Rule, User, Verb
from fencehold.security import audit, audit_chain
from fencehold.security.admission import How, Known
from fencehold.security.audit import AuditLog, Bounds, Denials, Told, Who
from fencehold.security.audit_chain import BrokenChain, files, verify
from fencehold.security.tls import Clients
from fencehold.server import Config, Server
from fencehold.types import Position
from tests.unit.doors.box import Client
from tests.unit.security.authority import Authority, tls_of, url_of

ALL = Role(rules=(Rule(prefix="", allow=tuple(Verb)),))
ALICE = Who("alice", "certificate", "10.0.0.1:5", "orders-worker", "redis-py 6")


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in audit_chain.lines(folder)]


class Story:
    """A machine, and a log of what it did."""

    def __init__(self, log: AuditLog) -> None:
        self.log = log
        self.machine = Machine()

    def do(self, *commands: Any, elapsed_ms: int = 0) -> None:
        entry = Entry(elapsed_ms, tuple(commands))
        applied = self.machine.apply(Position(self.machine.position + 1), entry)
        self.log.on_entry("CORRECTNESS", entry, applied)


def test_a_record_says_who_from_where_with_what_and_what_came_of_it(tmp_path: Path) -> None:
    """Of commands, and of what they caused to others."""
    log = AuditLog(tmp_path, node="a")
    story = Story(log)
    story.do(OpenSession(60_000, secret="hush", meta='{"client": "orders-worker"}'))
    log.know(1, ALICE)
    story.do(OpenSession(1_000), Acquire(1, ("orders",)), Acquire(2, ("orders",)))
    story.do(Release(1, ("orders",), 1), Break("orders", by="an operator"))
    story.do(elapsed_ms=2_000)
    log.close()
    found = records(tmp_path)
    grant = next(record for record in found if record.get("outcome") == "granted" and record["kind"] == "command")
    shown = {key: value for key, value in grant.items() if key not in ("time", "prev", "seq")}
    assert shown == {
        "node": "a",
        "kind": "command",
        "principal": "alice",
        "known_by": "certificate",
        "peer": "10.0.0.1:5",
        "client": "orders-worker",
        "library": "redis-py 6",
        "verb": "acquire",
        "session": 1,
        "names": ["orders"],
        "fence": 1,
        "outcome": "granted",
        "position": 2,
        "tier": "CORRECTNESS",
    }
    told = [(record["kind"], record["verb"], record.get("outcome")) for record in found]
    assert ("command", "acquire", "queued") in told
    assert ("command", "release", "released") in told
    assert ("notice", "acquire", "granted") in told
    assert ("command", "break", "broken") in told
    assert ("notice", "hold", "broken") in told
    assert ("notice", "session", "expired") in told
    assert "hush" not in (tmp_path / audit_chain.CURRENT).read_text()
    assert verify(tmp_path)[1].seq == len(found)


def test_whose_a_session_is_is_known_without_its_connection(tmp_path: Path) -> None:
    """Of what another node did, its entries say whose it is, and nothing here says what it made secret."""
    change = PolicyChange(users={"ann": User(secrets=("scrypt$of-a-secret",), roles=("all",))}, roles={"all": ALL})
    log = AuditLog(tmp_path)
    story = Story(log)
    story.do(ChangePolicy(0, change, "ann"))
    story.do(OpenSessionAs(60_000, principal="ann"))
    story.do(Acquire(1, ("orders",)), BreakAs("orders", principal="ann"), BreakAs("orders", principal="eve"))
    log.close()
    told = [(record["verb"], record["principal"], record["outcome"]) for record in records(tmp_path)]
    assert told[1:] == [
        ("open", "ann", "opened"),
        ("acquire", "ann", "granted"),
        ("break", "ann", "broken"),
        ("break", "eve", "denied"),
        ("hold", "ann", "broken"),
    ]
    assert told[0][:2] == ("policy", "ann")
    assert "of-a-secret" not in (tmp_path / audit_chain.CURRENT).read_text()


@pytest.mark.parametrize("harm", ["change", "take out", "put in", "swap", "cut a line"])
def test_what_was_tampered_with_breaks_the_chain(tmp_path: Path, harm: str) -> None:
    """Wherever it is, in an older file, too."""
    log = AuditLog(tmp_path, Bounds(file_bytes_max=1_000))
    for number in range(30):
        log.tell(Told("denied", ALICE, f"LOCK.BREAK {number}"))
        log.flush()
    log.close()
    assert len(files(tmp_path)) > 3
    assert verify(tmp_path)[1].seq == 30
    file = files(tmp_path)[1]
    lines = file.read_bytes().splitlines(keepends=True)
    match harm:
        case "change":
            lines[0] = lines[0].replace(b"alice", b"mallo")
        case "take out":
            del lines[0]
        case "put in":
            lines.insert(1, lines[0])
        case "swap":
            lines[0], lines[1] = lines[1], lines[0]
        case "cut a line":
            lines[-1] = lines[-1][:-5]
    file.write_bytes(b"".join(lines))
    with pytest.raises(BrokenChain, match=file.name.replace(".", r"\.") + "|audit"):
        verify(tmp_path)


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    """The oldest go, and the chain of what is left is whole."""
    log = AuditLog(tmp_path, Bounds(file_bytes_max=2_000, files_max=3))
    for _ in range(100):
        log.tell(Told("denied", ALICE, "LOCK.BREAK"))
        log.flush()
    log.close()
    assert len(files(tmp_path)) == 3
    assert all(path.stat().st_size <= 2_000 for path in files(tmp_path))
    first, end = verify(tmp_path)
    assert (end.seq, first.seq > 50) == (100, True)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files(tmp_path))


def test_it_goes_on_where_it_ended(tmp_path: Path) -> None:
    """After a restart, and after a crash in the middle of a line."""
    for number in (1, 2):
        log = AuditLog(tmp_path)
        log.tell(Told("denied", ALICE, f"LOCK.BREAK {number}"))
        log.close()
        with (tmp_path / audit_chain.CURRENT).open("ab") as file:
            file.write(b'{"seq": 99, "torn')
    AuditLog(tmp_path).close()
    assert verify(tmp_path)[1].seq == 2


def test_what_finds_no_room_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a gap record, as soon as one can be written; the event loop never waits."""
    gate = threading.Event()
    write = os.write

    def slow(file: int, data: bytes) -> int:
        gate.wait(10)
        return write(file, data)

    monkeypatch.setattr(os, "write", slow)
    log = AuditLog(tmp_path, Bounds(waiting_max=10))
    log.tell(Told("denied", ALICE, "first"))
    for _ in range(50):
        log.tell(Told("denied", ALICE, "more"))
    missed = log.missed
    gate.set()
    log.close()
    assert missed >= 39
    (gap,) = [record for record in records(tmp_path) if record["kind"] == "gap"]
    assert (gap["missed"], gap["detail"]) == (missed, "too much happened at once")
    assert len(records(tmp_path)) == 51 - missed + 1
    verify(tmp_path)


def test_a_full_disk_costs_records_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is taken back; when there is room again, a gap record says how many were missed."""
    is_full = threading.Event()
    monkeypatch.setattr(os, "write", _failing(os.write, is_full))
    monkeypatch.setattr(audit, "_RETRY_S", 0.01)
    log = AuditLog(tmp_path)
    log.tell(Told("denied", ALICE, "before"))
    assert log.flush()
    is_full.set()
    log.tell(Told("denied", ALICE, "meanwhile"))
    while not log.missed:
        threading.Event().wait(0.005)
    is_full.clear()
    log.tell(Told("denied", ALICE, "after"))
    log.close()
    assert [(record["kind"], record.get("verb"), record.get("missed")) for record in records(tmp_path)] == [
        ("denied", "before", None),
        ("gap", None, 1),
        ("denied", "after", None),
    ]
    verify(tmp_path)


def _failing(write: Callable[[int, bytes], int], is_full: threading.Event) -> Callable[[int, bytes], int]:
    """Half of what is written fits, then nothing."""
    has_begun: list[bool] = []

    def full(file: int, data: bytes) -> int:
        if not is_full.is_set():
            return write(file, data)
        if has_begun:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        has_begun.append(True)
        return write(file, bytes(data)[: len(data) // 2])

    return full


def test_a_server_writes_down_who_held_what(tmp_path: Path) -> None:
    """By the principal of the certificate; what was denied and who broke a hold, too."""
    authority = Authority(tmp_path / "ca")
    mine = authority.client("billing")
    tls = tls_of(authority, clients=Clients.REQUIRED)
    config = Config(data=tmp_path / "data", port=0, tls=tls, audit_log=tmp_path / "audit")

    async def scenario() -> None:
        async with Server(config) as server:
            url = url_of(server.port, authority, mine)
            async with aio.connect(url, name="invoices") as client, client.lock("orders"):
                pass

    asyncio.run(scenario())
    grant = next(record for record in records(tmp_path / "audit") if record.get("outcome") == "granted")
    assert (grant["principal"], grant["known_by"], grant["client"]) == ("billing", "certificate", "invoices")
    assert grant["names"] == ["orders"]
    verify(tmp_path / "audit")


async def right(user: str, secret: str) -> bool:
    return secret == "right"


def test_denials_and_acts_of_administrators_are_always_there(tmp_path: Path) -> None:
    """Who was not let in, and who broke something, before it is known what came of it."""
    config = Config(port=0, auth=True, audit_log=tmp_path)

    async def scenario() -> None:
        async with Server(config) as server:
            server.door.admission.check_user = right
            client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
            assert await client.refusal("LOCK.BREAK", "orders") == "NOAUTH"
            assert await client.refusal("AUTH", "root", "wr0ng-guess") == "WRONGPASS"
            await client.call("AUTH", "root", "right")
            await client.call("CLIENT", "SETINFO", "LIB-NAME", "redis-py")
            await client.call("LOCK.BREAK", "orders")
            await client.close()

    asyncio.run(scenario())
    found = [(record["kind"], record.get("principal"), record.get("verb")) for record in records(tmp_path)]
    assert [each for each in found if each[0] in ("denied", "act")] == [
        ("denied", None, "LOCK.BREAK"),
        ("denied", None, "login as 'root'"),
        ("act", "root", "LOCK.BREAK"),
    ]
    text = (tmp_path / audit_chain.CURRENT).read_text()
    assert "wr0ng-guess" not in text
    assert '"library":"redis-py"' in text


async def test_a_denial_says_what_was_asked_for_and_about_what(tmp_path: Path) -> None:
    """By the command and in words that have the name, where nothing is journaled: a question, or a watch."""
    async with Server(Config(port=0, audit_log=tmp_path)) as server:
        first = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        role = {"rules": [{"prefix": "", "allow": ["acquire", "observe", "break", "events", "admin"]}]}
        policy = {"users": {"ops": {"roles": ["all"]}, "eve": {}}, "roles": {"all": role}}
        await first.call("POLICY.APPLY", 0, json.dumps(policy))
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        await client.call("HELLO", 3)
        max(server.door.connections, key=lambda each: each.number).admit(Known("eve", How.CERTIFICATE))
        assert await client.refusal("LOCK.INFO", "orders") == "DENIED"
        assert await client.refusal("LOCK.WATCH", "orders:") == "DENIED"
        for each in (first, client):
            await each.close()
    assert [(told["verb"], told["detail"]) for told in records(tmp_path) if told["kind"] == "denied"] == [
        ("LOCK.INFO", "'eve' may not observe 'orders'"),
        ("LOCK.WATCH", "'eve' may not hear of events of 'orders:'"),
    ]


def test_what_a_log_missed_is_taken_from_the_journal(tmp_path: Path) -> None:
    """A log that lost its end has it again when the server starts, and nothing is in it twice."""
    config = Config(data=tmp_path / "data", port=0, audit_log=tmp_path / "audit")

    async def scenario() -> None:
        async with Server(config) as server, aio.connect(f"fencehold://127.0.0.1:{server.port}") as client:
            for _ in range(3):
                async with client.lock("orders"):
                    pass

    asyncio.run(scenario())
    file = tmp_path / "audit" / audit_chain.CURRENT
    whole = _told(tmp_path / "audit")
    for kept in (4, 3, 1):
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:kept]))

        async def again() -> None:
            async with Server(config):
                pass

        asyncio.run(again())
        assert _told(tmp_path / "audit")[: len(whole)] == whole
        verify(tmp_path / "audit")


def _told(folder: Path) -> list[tuple[Any, ...]]:
    return [(each.get("position"), each["kind"], each.get("verb"), each.get("names")) for each in records(folder)]


def test_a_flood_of_denials_does_not_push_out_what_others_did(tmp_path: Path) -> None:
    """So many a second are written one by one; of the others, how many, by address."""
    log = AuditLog(tmp_path)
    denials = Denials(log, per_round_max=5, addresses_max=3)
    for number in range(1_000):
        denials.tell(Told("denied", ALICE, "LOCK.BREAK"), f"10.0.0.{number % 5}")
    denials.end_round()
    denials.tell(Told("denied", ALICE, "LOCK.BREAK"), "10.0.0.1")
    log.close()
    found = [(record.get("peer"), record["verb"]) for record in records(tmp_path)]
    assert found[:5] == [(ALICE.peer, "LOCK.BREAK")] * 5
    assert sorted(found[5:9]) == [
        ("10.0.0.0", "199 more"),
        ("10.0.0.1", "199 more"),
        ("10.0.0.2", "199 more"),
        ("elsewhere", "398 more"),
    ]
    assert found[9:] == [(ALICE.peer, "LOCK.BREAK")]
