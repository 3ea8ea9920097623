"""`--tier`: the commands that look and lock, on the volatile machine of a real server."""

import json

import pytest

from fencehold.cli.tokens import decode
from tests.e2e.served import Served, ended, start, until


def test_names_of_one_tier_are_not_seen_in_the_other(server: Served) -> None:
    """A name can be had in both; each command speaks of the tier it was told."""
    volatile = server.call("acquire", "tier:a", "--tier", "efficiency")
    durable = server.call("acquire", "tier:a", "--try")
    assert (volatile.code, durable.code) == (0, 0)
    assert server.call("acquire", "tier:a", "--tier", "efficiency", "--try").code == 1
    fences = {
        tier: json.loads(server.call("info", "tier:a", "--tier", tier, "--json").out)["holds"][0]["fence"]
        for tier in ("efficiency", "CORRECTNESS")
    }
    assert fences == {"efficiency": decode(volatile.out).fence, "CORRECTNESS": decode(durable.out).fence}
    for command in ("ls", "top"):
        shown = server.call(command, "tier:", "--tier", "efficiency", "--json")
        assert str(fences["efficiency"]) in shown.out
        assert f'"fence":{fences["CORRECTNESS"]}}}' not in shown.out.replace(" ", "")
    assert json.loads(server.call("status", "--tier", "efficiency", "--json").out)["tier"] == "EFFICIENCY"
    assert len(server.call("sessions", "--tier", "efficiency", "--json").out.splitlines()) == 1
    assert server.call("release", durable.out.strip()).code == 0
    assert server.call("info", "tier:a").code == 1
    assert server.call("info", "tier:a", "--tier", "efficiency").code == 0
    # A token knows its tier.
    assert server.call("extend", volatile.out.strip()).code == 0
    assert server.call("release", volatile.out.strip()).code == 0
    assert server.call("info", "tier:a", "--tier", "efficiency").code == 1


def test_a_hold_of_the_volatile_tier_can_be_watched_and_broken(server: Served) -> None:
    """Its events are those of its machine; nobody is told to raise marks by its fence."""
    watching = server.start("watch", "tier:b", "--tier", "efficiency", "--count", "2", "--from", "0", "--json")
    token = server.call("acquire", "tier:b", "--tier", "efficiency").out.strip()
    assert server.call("break", "tier:b", "--yes").code == 1
    broken = server.call("break", "tier:b", "--yes", "--tier", "efficiency")
    assert (broken.code, broken.out) == (0, "broken\n")
    assert server.call("release", token).code == 75
    until(lambda: watching.poll() is not None)
    kinds = [json.loads(line)["kind"] for line in ended(watching).out.splitlines()]
    assert kinds == ["gap", "acquired"]


@pytest.mark.parametrize("word", ["fast", "EFFICIENT", "1"])
def test_what_is_no_tier_is_a_usage_error(server: Served, word: str) -> None:
    """It is said before anything is asked."""
    said = server.call("ls", "--tier", word)
    assert said.code == 2
    assert "correctness or efficiency" in " ".join(said.err.split())


def test_run_holds_a_name_of_either_tier(server: Served) -> None:
    """With a fence in the environment of the command, or without one."""
    show = ["--", "sh", "-c", "echo ${FENCEHOLD_FENCE:-none} $FENCEHOLD_NAME"]
    volatile = ended(server.start("run", "tier:run", "--tier", "efficiency", *show))
    assert (volatile.code, volatile.out) == (0, "none tier:run\n")
    durable = ended(server.start("run", "tier:run", *show))
    assert durable.code == 0
    assert durable.out.split()[0].isdecimal()


def test_run_locks_on_a_backend_without_a_server() -> None:
    """Any URL that the SDK takes; what it cannot give is refused before the command runs."""
    alone = ended(start("run", "--url", "memory://", "job", "--", "sh", "-c", "echo ran $FENCEHOLD_NAME"))
    assert (alone.code, alone.out) == (0, "ran job\n")
    refused = ended(start("run", "--url", "redis://127.0.0.1:1", "job", "--", "echo", "ran"))
    assert (refused.code, refused.out) == (2, "")
    assert "CORRECTNESS" in refused.err
    assert "fencehold run --tier efficiency" in refused.err
    away = ended(
        start("run", "--url", "redis://x:secret@127.0.0.1:1", "--tier", "efficiency", "job", "--", "echo")
    )
    assert away.code == 69
    assert "secret" not in away.err
