"""A secured server as a user meets it: made, started, asked, renewed, looked into; and no secret is shown."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

import fencehold
from fencehold.security.tokens import PREFIX
from tests.e2e.served import Said, Served, ended, serving, start


class Secured:
    """An authority, a server that asks everybody, and all that was written meanwhile."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.pki = place / "pki"
        self.written: list[str] = []
        self.secrets: list[str] = []

    def call(self, *words: str, **variables: str) -> Said:
        said = ended(start(*words, **variables))
        self.written += [said.out, said.err]
        return said

    def files(self, name: str) -> dict[str, str]:
        """What a client is told by the environment."""
        pair = {"CERT": self.pki / f"{name}.pem", "KEY": self.pki / f"{name}.key"} if name else {}
        return {f"FENCEHOLD_{key}": str(path) for key, path in {"CA": self.pki / "ca.pem", **pair}.items()}

    def options(self, clients: str) -> list[str]:
        tls = ("--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-ca", "ca.pem")
        named = [word if word.startswith("--") else str(self.pki / word) for word in tls]
        return [*named, "--tls-clients", clients]


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    made = Secured(tmp_path)
    assert made.call("security", "init", str(made.pki)).code == 0
    return made


def url_of(served: Served) -> str:
    return served.url.replace("fencehold://", "fenceholds://")


def test_a_first_secured_server(secured: Secured) -> None:
    """Its administrator gets in with what was made; who has no certificate is told what is missing."""
    with serving(secured.place, "--memory", "--host", "0.0.0.0", *secured.options("required")) as served:
        url = url_of(served)
        status = secured.call("status", "--json", FENCEHOLD_URL=url, **secured.files("admin"))
        facts = json.loads(status.out)
        assert (facts["tls"], facts["auth"], facts["principal"]) == (1, "required", "admin")
        assert facts["url"] == url
        stranger = secured.call("status", FENCEHOLD_URL=url, **secured.files(""))
        assert (stranger.code, "client certificate" in stranger.err) == (69, True)
        assert "$FENCEHOLD_CERT" in stranger.err
        # Of a server that is there, nobody is told to start one.
        untrusting = secured.call("status", FENCEHOLD_URL=url, **{**secured.files("admin"), "FENCEHOLD_CA": ""})
        assert (untrusting.code, "$FENCEHOLD_CA" in untrusting.err) == (69, True)
        elsewhere = url.replace("127.0.0.1", "127.0.0.2")
        misnamed = secured.call("status", FENCEHOLD_URL=elsewhere, **secured.files("admin"))
        assert (misnamed.code, "a host name of its certificate" in misnamed.err) == (69, True)
        for said in (stranger, untrusting, misnamed):
            assert "fencehold serve" not in said.err
        whoami = secured.call("whoami", FENCEHOLD_URL=url, **secured.files("admin"))
        assert whoami.out == "you are admin; the server has no policy: every client may do everything\n"
        doctor = secured.call("doctor", "--json", FENCEHOLD_URL=url, **secured.files("admin"))
        found = {check["check"]: check["level"] for check in json.loads(doctor.out)["checks"]}
        assert [found[check] for check in ("encryption", "logins", "certificate", "key")] == ["ok"] * 4
        run = secured.call("run", "job", "--", "true", FENCEHOLD_URL=url, **secured.files("admin"))
        assert run.code == 0


def test_a_renewed_certificate_is_taken_on_sighup_and_nobody_is_dropped(secured: Secured) -> None:
    """Who holds something goes on holding it; what cannot be used is not taken, and the log says so."""
    with serving(secured.place, "--memory", "--json", *secured.options("required")) as served:
        mine = f"?ca={secured.pki}/ca.pem&cert={secured.pki}/admin.pem&key={secured.pki}/admin.key"
        with fencehold.connect(url_of(served) + mine) as client, client.lock("job") as hold:
            assert secured.call("security", "renew", str(secured.pki), "server").code == 0
            served.process.send_signal(signal.SIGHUP)
            with fencehold.connect(url_of(served) + mine):
                pass
            (secured.pki / "server.pem").write_text("no certificate")
            served.process.send_signal(signal.SIGHUP)
            hold.check()
        served.process.terminate()
        events = [json.loads(line) for line in ended(served.process).err.splitlines()]
    told = [event["event"] for event in events]
    assert "certificate_reloaded" in told
    assert "certificate_kept" in told


def test_off_loopback_a_server_asks_for_what_is_missing(secured: Secured) -> None:
    """TLS first, then logins; and says what to type."""
    said = secured.call("serve", "--memory", "--host", "0.0.0.0", "--port", "0")
    assert (said.code, "--tls-cert" in said.err) == (2, True)
    options = secured.options("none")
    said = secured.call("serve", "--memory", "--host", "0.0.0.0", "--port", "0", *options, "--auth", "none")
    assert (said.code, "no client would have to authenticate" in said.err) == (2, True)
    with serving(secured.place, "--memory", "--host", "0.0.0.0", *options) as served:
        refused = secured.call("status", FENCEHOLD_URL=url_of(served), **secured.files(""))
        assert (refused.code, "requires authentication" in refused.err) == (77, True)
        served.process.terminate()
        assert "no client can log in" in ended(served.process).err


def test_no_secret_is_shown_anywhere(secured: Secured) -> None:
    """Not in a log, an error, a listing, the audit log, or what commands write; right ones and wrong ones."""
    tokens, audit = secured.place / "tokens", secured.place / "audit"
    token = secured.call("security", "token", "ci", "--tokens", str(tokens)).out.strip()
    assert token.startswith(PREFIX)
    # Shown once, when it was made.
    secured.written.clear()
    wrong, password = f"{PREFIX}wrong-token-wrong-token-wrong", "hunter2-hunter2"
    options = ["--json", "--tokens", str(tokens), "--audit-log", str(audit), "--auth", "required"]
    with serving(secured.place, "--memory", *secured.options("optional"), *options) as served:
        url, files = url_of(served), secured.files("")
        inside = secured.call("status", FENCEHOLD_URL=url, FENCEHOLD_TOKEN=token, **files)
        assert inside.code == 0, inside
        in_url = url.replace("://", f"://token:{token}@")
        for words in (["doctor"], ["cluster"], ["run", "job", "--", "true"]):
            assert secured.call(*words, FENCEHOLD_URL=in_url, **files).code in (0, 1)
        wrong_ones = {f"token:{wrong}": ["status"], f"alice:{password}": ["run", "job", "--", "true"]}
        for login, words in wrong_ones.items():
            failed = secured.call(*words, FENCEHOLD_URL=url.replace("://", f"://{login}@"), **files)
            assert failed.code == 77, failed
        secured.call("status", FENCEHOLD_URL=f"fencehold://alice:{password}@127.0.0.1:1")
        secured.call("status", FENCEHOLD_URL=f"fencehodl://alice:{password}@127.0.0.1:1")
        secured.call("status", FENCEHOLD_URL=f"fencehold://alice:{password}@h/x@y")
        secured.call("serve", "--check", "--tokens", str(tokens))
        served.process.terminate()
        said = ended(served.process)
    secured.written += [said.out, said.err]
    assert secured.call("audit", "verify", str(audit)).code == 0
    tail = secured.call("audit", "tail", str(audit), "-n", "1000")
    assert "ci (token)" in tail.out
    secured.written += [path.read_text() for path in audit.iterdir()]
    everything = "\n".join(secured.written)
    assert re.search(r"login as", everything)
    keys = [line for path in secured.pki.glob("*.key") for line in path.read_text().splitlines()[1:2]]
    for secret in (token, wrong, *keys):
        assert secret not in everything
    # A user is no secret; what was given in the place of one by mistake cannot be told from one.
    assert f":{password}" not in everything
    assert oct(os.stat(tokens).st_mode & 0o077) == "0o0"
