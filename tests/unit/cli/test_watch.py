"""Watching over a change of leaders: nothing is shown twice, and nothing is left out without a word."""

import contextlib

import pytest

from fencehold.cli.watch import Events
from fencehold.cli.wire import CannotConnect
from tests.unit.cli.test_wire import _HELLO, Scripted

BEGUN = b"%1\r\n$8\r\nposition\r\n:5\r\n"


def push(position: int, kind: str = "acquired") -> bytes:
    event = b"%%2\r\n$4\r\nkind\r\n$%d\r\n%b\r\n$8\r\nposition\r\n:%d\r\n" % (len(kind), kind.encode(), position)
    return b">2\r\n$5\r\nevent\r\n" + event


def seen(server: Scripted, since: int | None = None) -> list[tuple[int, str]]:
    """All that is shown until no node answers any more."""
    found = []
    with contextlib.suppress(CannotConnect):
        for event in Events(f"fencehold://{server.endpoint}", "", since).follow():
            found.append((event["position"], event["kind"]))
    return found


def test_an_entry_that_was_told_in_part_is_told_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """It is asked for again from its beginning, and what was shown is passed over."""
    first = BEGUN + push(6) + push(7) + push(7, "queued")
    then = BEGUN + push(7) + push(7, "queued") + push(7, "released") + push(8)
    server = Scripted(_HELLO, first, then=(_HELLO, then))
    wanted = [(6, "acquired"), (7, "acquired"), (7, "queued"), (7, "released"), (8, "acquired")]
    assert seen(server) == wanted
    assert server.heard[1].endswith(b"LOCK.WATCH\r\n$0\r\n\r\n")
    assert server.heard[3].endswith(b"$4\r\nFROM\r\n$1\r\n6\r\n")
    assert "looking for the node that leads" in capsys.readouterr().err


def test_without_an_event_it_goes_on_where_it_began() -> None:
    """Not at whatever the next leader has come to meanwhile."""
    server = Scripted(_HELLO, BEGUN, then=(_HELLO, BEGUN + push(6)))
    assert seen(server) == [(6, "acquired")]
    assert server.heard[3].endswith(b"$4\r\nFROM\r\n$1\r\n5\r\n")


def test_what_the_next_leader_does_not_know_is_a_gap() -> None:
    """It is shown, and counts as told."""
    server = Scripted(_HELLO, BEGUN + push(6), then=(_HELLO, BEGUN + push(9, "gap") + push(10)))
    assert seen(server, since=3) == [(6, "acquired"), (9, "gap"), (10, "acquired")]
    assert server.heard[1].endswith(b"$4\r\nFROM\r\n$1\r\n3\r\n")
