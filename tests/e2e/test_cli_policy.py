"""`policy`, `user`, `role`, `whoami` and `can`, on a server of their own; and no secret where it is not needed."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.served import Said, Served, ended, serving, start

FILE = """
[roles.admin]
rules = [{ prefix = "", allow = ["acquire", "observe", "break", "events", "admin"] }]
[roles.billing]
rules = [{ prefix = "billing:", allow = ["acquire", "observe"] }, { name = "billing:root", allow = [] },
    { prefix = "blind:", allow = ["acquire"] }]
[users.root]
roles = ["admin"]
[users.bill]
roles = ["billing"]
[quotas.each]
principal = "*"
holds = 1000
mode = "count"
"""
SECRET, OTHER = "s3cret-of-root", "s3cret-of-bill"


class Ruled:
    """A server with a policy, and who asks it."""

    def __init__(self, served: Served, place: Path) -> None:
        self.served, self.place = served, place

    def call(self, *words: str, user: str = "") -> Said:
        login = f"{user}:{ {'root': SECRET, 'bill': OTHER}[user] }@" if user else ""
        url = self.served.url.replace("://", f"://{login}")
        said = ended(start(*words, "--url", url))
        assert SECRET not in said.out + said.err
        assert OTHER not in said.out + said.err
        return said


@pytest.fixture
def ruled(tmp_path: Path) -> Iterator[Ruled]:
    (tmp_path / "policy.toml").write_text(FILE)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "other").write_text(f"{OTHER}\n")
    with serving(tmp_path, "--data", str(tmp_path / "data")) as served:
        yield Ruled(served, tmp_path)


def test_from_an_open_server_to_one_with_a_policy(ruled: Ruled) -> None:
    """An administrator, a plan, a policy in one step, secrets from files, and rights that hold."""
    file = str(ruled.place / "policy.toml")
    assert ruled.call("policy", "apply", file, "--yes").code == 2
    assert "no policy" in ruled.call("policy", "show").out
    assert ruled.call("user", "add", "root", "--admin", "--secret-file", str(ruled.place / "secret")).code == 0
    assert ruled.call("policy", "show").code == 77
    plan = json.loads(ruled.call("policy", "plan", file, "--json", user="root").out)
    steps = {(step["what"], step["name"], step["change"]) for step in plan["changes"]}
    assert steps == {("role", "billing", "add"), ("user", "bill", "add"), ("quota", "each", "add")}
    applied = json.loads(ruled.call("policy", "apply", file, "--yes", "--json", user="root").out)
    assert (applied["revision"], applied["sessions_ended"]) == (2, 0)
    assert json.loads(ruled.call("policy", "plan", file, "--json", user="root").out)["changes"] == []
    assert ruled.call("user", "secret", "bill", "--secret-file", str(ruled.place / "other"), user="root").code == 0
    assert json.loads(ruled.call("whoami", "--json", user="bill").out)["roles"] == ["billing"]
    assert ruled.call("acquire", "billing:1", "--ttl", "1m", user="bill").code == 0
    assert ruled.call("acquire", "other", "--try", user="bill").code == 77
    assert ruled.call("info", "other", user="bill").code == 77
    # What only an administrator is told is no fault of the server, nor is the server away.
    nodes = ruled.call("cluster", user="bill")
    assert (nodes.code, nodes.err) == (77, "fencehold: 'bill' may not administer this service\n")
    doctor = ruled.call("doctor", "--json", user="bill")
    checks = {check["check"]: check for check in json.loads(doctor.out)["checks"]}
    assert (doctor.code, checks["inside"]["level"], checks["server"]["level"]) == (0, "warn", "ok")
    assert "as an administrator" in checks["inside"]["advice"]
    assert ruled.call("acquire", "blind:1", "--ttl", "1m", user="root").code == 0
    busy = ruled.call("acquire", "blind:1", "--try", user="bill")
    assert (busy.code, busy.err) == (1, "fencehold: blind:1 is busy\n")
    assert ruled.call("can", "bill", "acquire", "billing:1", user="root").code == 0
    denied = ruled.call("can", "bill", "acquire", "billing:root", "--json", user="root")
    assert denied.code == 1
    assert json.loads(denied.out)["rule"] == {"allow": [], "name": "billing:root"}
    gone = json.loads(ruled.call("user", "disable", "bill", "--json", user="root").out)
    assert gone["sessions_ended"] == 1
    assert ruled.call("ls", user="bill").code == 77
    assert ruled.call("user", "remove", "root", user="root").code == 2
    listed = json.loads(ruled.call("user", "list", "--json", user="root").out)
    assert [(user["user"], user["disabled"], user["secrets"]) for user in listed] == [
        ("bill", True, 1),
        ("root", False, 1),
    ]
    assert json.loads(ruled.call("role", "list", "--json", user="root").out)[1]["users"] == ["bill"]
    assert "nothing on name billing:root" in ruled.call("role", "show", "billing", user="root").out


def test_tokens_are_made_listed_and_revoked(ruled: Ruled) -> None:
    """Shown once, known at once, kept through a change of the policy; a revoked one opens nothing, and its id is
    found from what leaked."""
    file, kept = str(ruled.place / "policy.toml"), ruled.place / "ci.token"
    assert ruled.call("token", "create", "bill").code == 77 or ruled.call("token", "create", "bill").code == 1
    assert ruled.call("user", "add", "root", "--admin", "--secret-file", str(ruled.place / "secret")).code == 0
    assert ruled.call("policy", "apply", file, "--yes", user="root").code == 0
    assert "user add eve --no-secret" in ruled.call("token", "create", "eve", user="root").err
    made = json.loads(ruled.call("token", "create", "bill", "--expires", "30d", "--json", user="root").out)
    assert ruled.call("token", "create", "bill", "--file", str(kept), user="root").code == 0
    assert kept.stat().st_mode & 0o077 == 0
    listed = json.loads(ruled.call("token", "list", "--json", user="root").out)
    assert {each["user"] for each in listed} == {"bill"}
    assert made["id"] in [each["id"] for each in listed]
    assert ruled.call("policy", "apply", file, "--yes", user="root").code == 0
    whoami = ended(start("whoami", "--json", "--url", ruled.served.url, FENCEHOLD_TOKEN_FILE=str(kept)))
    assert json.loads(whoami.out)["principal"] == "bill"
    leaked = hashlib.sha256(kept.read_text().strip().encode()).hexdigest()
    assert ruled.call("token", "revoke", kept.read_text().strip(), user="root").code == 2
    assert ruled.call("token", "revoke", leaked, user="root").out.startswith(f"revoked {leaked[:16]} of bill")
    assert ruled.call("token", "revoke", leaked, user="root").code == 1
    assert ended(start("whoami", "--url", ruled.served.url, FENCEHOLD_TOKEN_FILE=str(kept))).code == 77
    seen = b"".join(path.read_bytes() for path in ruled.place.rglob("*") if path.is_file() and path != kept)
    assert kept.read_bytes().strip() not in seen
    assert made["token"].encode() not in seen


def test_no_secret_is_in_the_log_or_the_journal(ruled: Ruled) -> None:
    """Only its hash is kept, and neither a right nor a wrong login leaves a trace of what was typed."""
    assert ruled.call("user", "add", "root", "--admin", "--secret-file", str(ruled.place / "secret")).code == 0
    assert ruled.call("whoami", user="root").code == 0
    assert ruled.call("whoami", user="bill").code == 77
    given = {"secret", "other"}
    files = [path for path in ruled.place.rglob("*") if path.is_file() and path.name not in given]
    kept = b"".join(path.read_bytes() for path in files)
    assert SECRET.encode() not in kept
    assert OTHER.encode() not in kept
