"""`fencehold security`: an authority of one's own, and what it signs."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fencehold import UsageError, aio
from fencehold.cli.app import build
from fencehold.security.certificates import principal_in
from fencehold.security.issuer import NODE, Issuer
from fencehold.security.tls import Clients, ServerTls, principal_of_file, read_file
from fencehold.security.tokens import Tokens, digest_of
from fencehold.server import Config, Server


def ran(*words: str) -> str:
    """What a command writes."""
    result = CliRunner().invoke(build(list(words)), list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_first_cluster_is_a_command_away(tmp_path: Path) -> None:
    """What it makes is what a server and its administrator need; what it prints says so."""
    folder = tmp_path / "pki"
    said = ran("security", "init", str(folder))
    assert f"--tls-ca {folder}/ca.pem --tls-clients required" in said
    assert f"FENCEHOLD_CERT={folder}/admin.pem FENCEHOLD_KEY={folder}/admin.key" in said
    assert {path.name for path in folder.iterdir() if path.stat().st_mode & 0o077} == {
        "ca.pem",
        "crl.pem",
        "server.pem",
        "admin.pem",
    }
    assert f"--tls-crl {folder}/crl.pem" in said
    tls = ServerTls(folder / "server.pem", folder / "server.key", folder / "ca.pem", Clients.REQUIRED)

    async def scenario() -> None:
        async with Server(Config(port=0, tls=tls)) as server:
            for host in ("127.0.0.1", "localhost"):
                url = f"fenceholds://{host}:{server.port}?ca={folder}/ca.pem&cert={folder}/admin.pem&key={folder}/admin.key"
                async with aio.connect(url):
                    assert [each.principal for each in server.door.connections] == ["admin"]

    asyncio.run(scenario())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Neither an authority nor a certificate, except by a renewal."""
    issuer = Issuer.make(tmp_path)
    issuer.for_client("alice", "alice")
    with pytest.raises(UsageError, match="exists already"):
        Issuer.make(tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        issuer.for_client("alice", "alice")
    with pytest.raises(UsageError, match="replaced"):
        issuer.renew("ca")


def test_a_renewal_has_the_same_names_and_another_key(tmp_path: Path) -> None:
    """Of nodes, of clients, and of workloads with a SPIFFE ID."""
    issuer = Issuer.make(tmp_path)
    spiffe = "spiffe://example.org/ns/shop/sa/billing"
    pairs = [
        issuer.for_node("node", ["locks.example.org", "10.0.0.1"], 5),
        issuer.for_client("alice", "alice", 5),
        issuer.for_client("billing", spiffe, 5),
    ]
    before = [(pair.key.read_bytes(), read_file(pair.cert)) for pair in pairs]
    assert len(json.loads(ran("security", "renew", str(tmp_path), "--json"))) == 3
    for (key, old), pair in zip(before, pairs, strict=True):
        new = read_file(pair.cert)
        assert new.not_after > old.not_after
        assert pair.key.read_bytes() != key
        assert principal_in(new) == principal_in(old)
        assert os.stat(pair.key).st_mode & 0o077 == 0
    assert [principal_of_file(pair.cert) for pair in pairs] == [NODE, "alice", spiffe]
    assert "no certificate expires" in ran("security", "renew", str(tmp_path))


@pytest.mark.parametrize("name", [NODE, "token", "a b", "../evil", "spiffe://Example.org/x", ""])
def test_whom_no_certificate_is_made_for(tmp_path: Path, name: str) -> None:
    """What would not be let in, or pass for a node, or leave the directory."""
    issuer = Issuer.make(tmp_path)
    with pytest.raises(Exception, match=r"."):
        issuer.for_client(name or "x", name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.key", "ca.pem"]


def test_a_token_is_shown_once_and_kept_hashed(tmp_path: Path) -> None:
    """The file is for the server."""
    file = tmp_path / "tokens"
    made = json.loads(ran("security", "token", "ci", "--tokens", str(file), "--expires", "1h", "--json"))
    assert made["token"] not in file.read_text()
    line = Tokens(file).find(digest_of(made["token"]))
    assert line is not None
    assert line.principal == "ci"
