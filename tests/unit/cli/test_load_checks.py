"""What `doctor` says of a server with much to do, and of one that says nothing of it."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fencehold.cli import checks, load_checks
from fencehold.cli.app import build
from fencehold.drivers.address import Endpoint

_INFO = "fencehold_version:1\r\nrole:leader\r\nepoch:1\r\nengine:memory\r\ndurable:0\r\n"
_HEALTH: dict[str, Any] = {"note": "", "data": None, "members": [], "appends": 0, "engine": "memory"}
_FLOOD = {"throttled_clients": 1, "busiest_client": "billing worker 10.0.0.7:51034 41000"}


def test_a_flood_is_warned_of_with_who_it_is() -> None:
    """By name, from where, and how much."""
    (found,) = load_checks.clients(_FLOOD)
    assert found.level == "warn"
    assert found.said == "billing worker at 10.0.0.7:51034 sends 41 000 commands/s and is throttled"
    assert found.advice


def test_of_several_the_busiest_is_told() -> None:
    """And how many there are."""
    (found,) = load_checks.clients({**_FLOOD, "throttled_clients": 3})
    assert found.said.endswith("and is throttled; 2 clients are, too")
    (found,) = load_checks.clients({"throttled_clients": 1, "busiest_client": ""})
    assert found.said == "1 client is throttled"


@pytest.mark.parametrize(
    ("busiest", "said"),
    [
        ("", "no client floods the server"),
        (
            "redis client [::1]:5 1200",
            "no client floods the server; the busiest: redis client at [::1]:5 sends 1 200 commands/s",
        ),
        ("something else", "no client floods the server; the busiest: something else"),
    ],
)
def test_where_nobody_floods_that_is_said(busiest: str, said: str) -> None:
    """With who asks most, if the server says so."""
    (found,) = load_checks.clients({"throttled_clients": 0, "busiest_client": busiest})
    assert (found.level, found.said) == ("ok", said)


def test_a_server_that_says_nothing_of_it_is_not_judged() -> None:
    """An older one has no such fields."""
    assert list(load_checks.clients({"role": "leader"})) == []
    assert list(load_checks.work(_HEALTH)) == []


def test_work_that_is_held_back_is_warned_of_with_the_reason() -> None:
    """Granting stops, and somebody must see to it."""
    (found,) = load_checks.work({**_HEALTH, "held_back": "etcd has used 98 % of its quota"})
    assert found.level == "warn"
    assert found.said == "new work is held back: etcd has used 98 % of its quota"


@pytest.mark.parametrize(("used", "level"), [(10 << 20, "ok"), (110 << 20, "warn")])
def test_how_much_room_is_used_is_told(used: int, level: str) -> None:
    """Early enough for more to be made."""
    (found,) = load_checks.work({"held_back": "", "room_used_bytes": used, "room_allowed_bytes": 128 << 20})
    assert (found.level, found.said) == (level, f"{used >> 20} of 128 MiB used")
    assert list(load_checks.work({"held_back": "", "room_used_bytes": used, "room_allowed_bytes": 0})) == []


class Told:
    """A wire to a server that says this."""

    endpoint = Endpoint("127.0.0.1", 7420)

    def __init__(self, info: str, health: dict[str, Any]) -> None:
        self._said = {"INFO": info, "NODE.HEALTH": health, "PING": "PONG"}

    def call(self, *words: str) -> Any:
        return self._said[words[0]]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("says_so", [True, False])
def test_doctor_shows_it_to_programs(says_so: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server says so; and it does not miss what an older one leaves out."""
    more = "throttled_clients:1\r\nbusiest_client:worker 10.0.0.7:5 41000\r\n" if says_so else ""
    full = {"held_back": "no room", "room_used_bytes": 9, "room_allowed_bytes": 10}
    health = {**_HEALTH, **full} if says_so else _HEALTH
    monkeypatch.setattr(checks, "connect", lambda *_, **__: Told(_INFO + more, health))
    monkeypatch.setattr(checks, "nodes", lambda _: ())
    said = json.loads(CliRunner().invoke(build(["doctor"]), ["doctor", "--json"]).stdout)
    found = {each["check"]: each["level"] for each in said["checks"]}
    wanted = {"clients": "warn", "new work": "warn", "quota": "warn"} if says_so else {}
    assert {check: level for check, level in found.items() if check in ("clients", "new work", "quota")} == wanted
