"""Holes that others had, and the test here that keeps each of them shut.

The right column names tests as `file::test`, from `tests/`; that each of them exists is tested below.

| hole | where it was | test |
|---|---|---|
| a NUL ends a common name: logged in as somebody else | Redis 8.6 to 8.10 | unit/security/test_certificates.py::test_an_odd_common_name_names_nobody |
| two alternative names, of which either counts | SPIFFE, X.509 | unit/security/test_certificates.py::test_two_names_name_nobody |
| a name that looks like another, or ends in a dot or space | X.509 | unit/security/test_certificates.py::test_an_odd_common_name_names_nobody |
| a URI that is no SPIFFE ID, or one with a path that goes up | SPIFFE | unit/security/test_certificates.py::test_an_odd_uri_names_nobody |
| two readers of one certificate do not agree | ASN.1 | unit/security/test_certificates.py::test_a_name_of_an_odd_kind_names_nobody |
| CR LF in an error forges the next reply | Redis 8.10 RC2 | unit/security/test_holes.py::test_no_text_that_comes_back_forges_a_reply |
| CR LF in a pushed event forges a reply | Redis 8.10 RC2 | unit/security/test_holes.py::test_no_text_that_is_pushed_forges_a_reply |
| a line break forges a line of a log | many | unit/security/test_holes.py::test_no_text_forges_a_line_of_the_audit_log |
| the same, of the log of a server | many | unit/security/test_holes.py::test_no_text_forges_a_line_of_a_log |
| CR LF in an error forges a field of gRPC | many | unit/security/test_holes.py::test_no_text_forges_a_field_of_grpc |
| CR LF in a name forges a header, or an event of a stream | many | e2e/test_listener_holes.py::test_no_name_forges_a_header_or_an_event |
| a command forgets the rights on one of its names | Redis 8.6 MSETEX, etcd CVE-2026-33343 | unit/doors/test_rights.py::test_allowed_is_exactly_what_the_policy_says |
| the same, over another protocol | etcd CVE-2026-44283 | e2e/test_listener_rights.py::test_a_grpc_call_is_denied_exactly_if_the_policy_says_so |
| a right to one key is a watch of all later ones | etcd GHSA-xg4h | unit/doors/test_rights.py::test_a_watch_of_an_exact_name_is_no_range |
| a call without any check | etcd CVE-2026-33413 | unit/security/test_rights.py::test_a_command_without_a_need_cannot_be_registered |
| the same, of another listener | etcd CVE-2026-33413 | e2e/test_listener_rights.py::test_every_call_has_cases |
| handshakes without a deadline | etcd GHSA-6vch | unit/security/test_listener.py::test_a_thousand_half_open_handshakes_harm_nobody |
| headers and bodies without a bound | etcd GHSA-6vch | e2e/test_http.py::test_headers_have_a_bound |
| one listener takes a credential that another does not | etcd 3.7.0 | e2e/test_listener_holes.py::test_every_listener_takes_the_same_credentials |
| a list of revoked certificates that one side does not look at | etcd GHSA-3wh4 | unit/security/test_revocation.py::test_a_node_whose_certificate_was_revoked_does_not_follow |
| the same, of a listener for another protocol | etcd GHSA-3wh4 | unit/doors/test_secured_listeners.py::test_a_revoked_certificate_is_not_let_in_and_one_that_is_in_is_put_out |
| handshakes without a deadline, or a bound, of such a listener | etcd GHSA-6vch | unit/doors/test_secured_listeners.py::test_handshakes_that_are_left_open_keep_nobody_out |
| snapshots and restores with too little a right | ZooKeeper CVE-2025-58457 | unit/doors/test_rights.py::test_allowed_is_exactly_what_the_policy_says |
| an address, or a header that a client writes, is an identity | ZooKeeper CVE-2024-51504 | e2e/test_listener_holes.py::test_no_header_is_an_identity |
| a name server decides who somebody is | ZooKeeper CVE-2026-24281 | unit/security/test_holes.py::test_no_name_server_is_asked_who_somebody_is |
| secrets in logs | ZooKeeper CVE-2026-24308 | e2e/test_cli_policy.py::test_no_secret_is_in_the_log_or_the_journal |
| secrets in what is shown | many | e2e/test_cli_security.py::test_no_secret_is_shown_anywhere |
| a failing AUTH in the middle of a pipeline has no reply | Redis 7.4 to 8 | unit/security/test_admission.py::test_failing_logins_sent_at_once_are_answered_in_order_and_one_by_one |
| a user that is turned off goes on with what is open | Redis ACL `off` | unit/doors/test_authentication.py::test_a_user_that_is_disabled_loses_its_session_at_once |
| a token that is taken away goes on with what is open | many | unit/security/test_policy_tokens.py::test_revoking_a_token_ends_what_it_opened_and_nothing_else |
| a check that is out of date when it is acted upon | etcd, before auth revisions | property/test_machine_model.py::test_the_machine_does_what_the_model_says |
| a watch outlives the right to it | etcd, by design | unit/doors/test_rights.py::test_a_right_to_hear_that_is_taken_away_ends_what_is_heard_at_once |
| parked commands that are cancelled, cut off or expire | Redis CVE-2026-23479 | unit/doors/test_hostile.py::test_random_input_neither_kills_the_server_nor_stays_with_it |
| streams and messages without a bound | gRPC GHSA-hrxh | e2e/test_grpc.py::test_messages_and_metadata_have_bounds |

Scripts that break out of their interpreter (Redis CVE-2025-49844 and others) have no test: there is no interpreter.
"""  # noqa: E501

import asyncio
import json
import logging
import re
import socket
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import hiredis
import pytest
from hpack import Decoder

from fencehold.cli.server_process import JsonLines, Lines
from fencehold.doors.grpc.http2.heads import status_block
from fencehold.drivers.http2.codes import Code
from fencehold.security.rights import NEEDS
from fencehold.security.throttle import Throttle
from fencehold.server import Config, Server
from tests.unit.doors.box import Box, Client, Failed, frame, serve
from tests.unit.doors.policies import change, rules
from tests.unit.security.test_principals import USERS, asking

ROOT = Path(__file__).parents[2]
FORGED = "+FORGED\r\n"
HOSTILE = f"x\r\n{FORGED}$3\r\nbad\r\n-ERR FORGED\r\n:1\r\n"
_BY_HAND = {"QUIT", "NODE.FOLLOW", "HELLO", "LOCK.ACQUIRE", "LOCK.MACQUIRE"}
"""They close the connection, turn it into something else, change how it speaks, or wait: some are added below."""


def test_every_hole_has_the_test_that_is_named() -> None:
    """The table above is true: the files are there, and the tests in them."""
    rows = re.findall(r"^\| .* \| (\S+)::(\w+) \|$", __doc__ or "", re.MULTILINE)
    assert len(rows) > 25
    for file, test in rows:
        assert f"def {test}(" in (ROOT / file).read_text(), (file, test)


def hostile_commands() -> list[tuple[str, ...]]:
    """Every command, with a hostile text in each place where one can stand."""
    texts = ("1", HOSTILE)
    commands = [command for command in NEEDS if command not in _BY_HAND]
    found = [(command, *words) for command in commands for words in product(texts, repeat=2)]
    found += [(command, HOSTILE) for command in commands]
    found += [
        ("HELLO", HOSTILE),
        ("LOCK.ACQUIRE", HOSTILE, HOSTILE),
        ("LOCK.MACQUIRE", HOSTILE, HOSTILE),
        ("LOCK.ACQUIRE", HOSTILE, "OWNER", HOSTILE, "META", HOSTILE, "WAIT", "0"),
        ("LOCK.ACQUIRE", HOSTILE, "WAIT", "0"),
        ("LOCK.MACQUIRE", "2", HOSTILE, f"{HOSTILE}2", "WAIT", "0"),
        ("LOCK.BREAK", HOSTILE, "FENCE", HOSTILE),
        ("CLIENT", "SETNAME", HOSTILE),
        ("CLIENT", "SETINFO", "LIB-NAME", HOSTILE),
        ("CAN", HOSTILE, "acquire", HOSTILE),
        ("CAN", "ann", HOSTILE, "x"),
        ("SESSION.OPEN", "TTL", "60000", "META", HOSTILE),
        ("POLICY.APPLY", "0", json.dumps({"users": {HOSTILE: {"roles": [HOSTILE]}}})),
        ("POLICY.APPLY", "0", json.dumps({HOSTILE: 1})),
        ("INFO",),
        ("LOCK.LIST", "HOLD"),
        ("SESSION.LIST",),
        ("LOCK.INFO", HOSTILE),
        (HOSTILE,),
    ]
    return found


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("has_policy", [False, True])
def test_no_text_that_comes_back_forges_a_reply(version: int, has_policy: bool) -> None:
    """Each command has one reply, in its place, whatever stands in its words; what was sent is never a reply."""

    async def scenario(box: Box) -> None:
        box.server.door.admission.throttle = Throttle(sleep=lambda _: None)
        if has_policy:
            tables: dict[str, Any] = {"users": {"sys": {"roles": ["root"]}}, "roles": {"root": rules(all="admin")}}
            await change(box, await box.client(3), **tables)
        client = await box.client(version)
        for words in hostile_commands():
            client.send(*words)
            client.send("ECHO", "marker")
            try:
                told = await client.reply()
            except Failed as failed:
                told = str(failed)
                assert "\n" not in told, words
                assert "\r" not in told, words
            assert told not in ("FORGED", "bad", "ERR FORGED"), words
            assert await client.reply() == "marker", (words, told)

    serve(scenario)


def test_no_text_that_is_pushed_forges_a_reply() -> None:
    """An event about a name is one push, whatever the name is, and who did it."""

    async def scenario(box: Box) -> None:
        watcher, client = await box.client(3), await box.client(3)
        await watcher.call("LOCK.WATCH", "")
        await client.call("CLIENT", "SETNAME", "a\r\nb")
        await client.call("SESSION.OPEN", "TTL", 60_000, "META", HOSTILE)
        await client.call("LOCK.ACQUIRE", HOSTILE, "OWNER", HOSTILE)
        await watcher.call("LOCK.BREAK", HOSTILE)
        kinds = set()
        while "broken" not in kinds:
            event = (await watcher.push())[1]
            kinds.add(event["kind"])
            assert event["names"] in ([HOSTILE], []), event
        assert await watcher.call("ECHO", "marker") == "marker"

    serve(scenario)


async def test_no_text_forges_a_line_of_the_audit_log(tmp_path: Path) -> None:
    """Each line is one record of JSON that hangs on the one before, whatever names and clients are called."""
    folder = tmp_path / "audit"
    async with Server(Config(port=0, audit_log=folder)) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        forged = '\n{"seq": 1, "principal": "root"}\u2028\n'
        await client.refusal("AUTH", forged, forged)
        await client.call("SESSION.OPEN", "TTL", 60_000, "META", json.dumps({"client": forged}))
        await client.call("LOCK.ACQUIRE", forged, "OWNER", forged)
        await client.call("LOCK.BREAK", forged)
        await client.close()
    lines = b"".join(path.read_bytes() for path in sorted(folder.iterdir())).split(b"\n")
    records = [json.loads(line) for line in lines if line]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert "root" not in {record.get("principal") for record in records}
    assert any("names" in record for record in records)
    assert len(records) >= 4


@pytest.mark.parametrize("formatter", [Lines(), JsonLines()])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\v", "\f", "\x1b[2K", "\x85", "\u2028", "\u2029", "\0"])
def test_no_text_forges_a_line_of_a_log(formatter: logging.Formatter, end: str) -> None:
    """An event is one line of what can be printed, whatever a name has in it; and it can be read back."""
    name = f"orders{end}forged"
    record = logging.LogRecord("fencehold", logging.WARNING, "", 0, "broken", (), None)
    record.facts = {"name": name}
    line = formatter.format(record)
    assert line.isprintable()
    assert line.splitlines() == [line]
    if isinstance(formatter, JsonLines):
        assert json.loads(line)["name"] == name
    else:
        assert json.loads(line.partition(" name=")[2]) == name


def test_no_text_forges_a_field_of_grpc() -> None:
    """What is told of an error is one field, whatever is in it."""
    fields = list(Decoder().decode(status_block(Code.INVALID_ARGUMENT, HOSTILE), raw=True))
    told = dict(fields)
    assert len(told) == len(fields)
    assert b"\r" not in told[b"grpc-message"]
    assert b"\n" not in told[b"grpc-message"]
    assert unquote_to_bytes(told[b"grpc-message"]).decode() == HOSTILE


async def test_no_name_server_is_asked_who_somebody_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to log in by certificate, secret or token, nor to be refused."""
    async with asking(tmp_path) as box:
        ops = await box.named("ops")
        await change_of(ops)
        # Connected before: to call a server by its name is the client's own affair.
        client = await box.client()

        def asked(*words: object, **_: object) -> None:
            raise AssertionError(f"a name server was asked: {words}")

        for name in (
            "getaddrinfo",
            "gethostbyaddr",
            "gethostbyname",
            "gethostbyname_ex",
            "getnameinfo",
            "getfqdn",
        ):
            monkeypatch.setattr(socket, name, asked)
        assert await client.refusal("AUTH", "alice", "wrong") == "WRONGPASS"
        assert await client.refusal("AUTH", "token", "fht_wrong") == "WRONGPASS"
        assert await client.call("AUTH", "alice", "s3cret") == "OK"
        monkeypatch.undo()
        for each in (ops, client):
            await each.close()


async def change_of(ops: Client) -> None:
    revision = (await ops.map("WHOAMI"))["revision"]
    await ops.map("POLICY.APPLY", revision, json.dumps(USERS))


def test_a_reply_is_read_as_it_was_written() -> None:
    """The texts above are hostile indeed: written plainly into a reply, they forge the next one."""
    reader = hiredis.Reader()
    reader.feed(f"-ERR unknown {HOSTILE}".encode())
    told = []
    while (reply := reader.gets()) is not False:
        told.append(reply)
    assert b"FORGED" in told
    assert frame("ECHO", HOSTILE).count(b"FORGED") == 2
