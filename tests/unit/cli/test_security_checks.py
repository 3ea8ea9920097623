"""What `doctor` says of what is open."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fencehold.cli import security_checks
from tests.unit.security.authority import Authority

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SAFE = {"tls": 1, "auth": "required", "listens_on": "0.0.0.0", "principal": "admin"}


def levels(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [(found.check, found.level) for found in security_checks.server(facts, None)]


def test_what_is_open_to_other_machines_is_warned_of() -> None:
    """Without TLS, or without logins; on loopback it is only said."""
    assert levels(SAFE) == [("encryption", "ok"), ("logins", "ok")]
    assert levels({**SAFE, "tls": 0}) == [("encryption", "warn"), ("logins", "ok")]
    assert levels({**SAFE, "auth": "none"}) == [("encryption", "ok"), ("logins", "warn")]
    local = {**SAFE, "tls": 0, "auth": "none", "listens_on": "127.0.0.1"}
    assert levels(local) == [("encryption", "ok"), ("logins", "ok")]
    assert "every user of this machine" in list(security_checks.server(local, None))[1].said
    assert levels({"role": "leader"}) == []


def test_a_policy_is_no_open_door() -> None:
    """Where it says who may do what, not everybody on the machine can break any lock."""
    local = {**SAFE, "tls": 0, "auth": "policy", "listens_on": "127.0.0.1", "principal": "ann"}
    assert list(security_checks.server(local, None))[1].said == "the policy says who may do what; you are ann"


@pytest.mark.parametrize(("days", "level"), [(-1, "fail"), (3, "warn"), (13, "warn"), (30, "ok")])
def test_a_certificate_that_expires_soon_is_warned_of(days: int, level: str) -> None:
    """Two weeks before; one that has expired fails."""
    assert security_checks.expiry("certificate", NOW + timedelta(days=days, hours=1), NOW).level == level


def test_a_key_that_others_can_read_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do; named by the URL or by the environment."""
    mine = Authority(tmp_path).client("billing")
    monkeypatch.setenv("FENCEHOLD_TLS_KEY", str(tmp_path / "nowhere"))
    url = f"fenceholds://127.0.0.1?cert={mine.cert}&key={mine.key}"
    mine.key.chmod(0o644)
    missing, open_ = security_checks.own_files(url)
    assert (missing.level, open_.level, open_.advice) == ("fail", "warn", f"chmod o= {mine.key}")
    mine.key.chmod(0o600)
    assert [found.level for found in security_checks.own_files(url)] == ["fail", "ok"]
