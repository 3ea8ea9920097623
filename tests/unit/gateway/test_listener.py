"""Where a listener may listen, and its TLS: refused before it starts, if it cannot be."""

from pathlib import Path

import pytest
import trustme

from fencehold.errors import UsageError
from fencehold.gateway.listener import check_listener, tls_of


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A certificate, its key, and who signed it."""
    ca = trustme.CA()
    own = ca.issue_cert("localhost")
    cert, key, signer = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    own.cert_chain_pems[0].write_to_path(str(cert))
    own.private_key_pem.write_to_path(str(key))
    ca.cert_pem.write_to_path(str(signer))
    return cert, key, signer


def test_in_the_clear_it_listens_to_this_machine_only() -> None:
    """Unless it is told that the network is trusted."""
    for host in ("127.0.0.1", "::1", "localhost"):
        check_listener(host, None, insecure=False)
    for host in ("0.0.0.0", "10.0.0.1", "example.com"):
        with pytest.raises(UsageError, match="--insecure"):
            check_listener(host, None, insecure=False)
        check_listener(host, None, insecure=True)


def test_with_tls_it_listens_anywhere(files: tuple[Path, Path, Path]) -> None:
    """Nobody has to say that the network is trusted."""
    cert, key, ca = files
    tls = tls_of(cert, key, ca, "required")
    assert tls is not None
    check_listener("0.0.0.0", tls, insecure=False)


def test_options_that_do_not_fit_together_are_refused(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """By what is missing, or wrong."""
    cert, key, ca = files
    assert tls_of(None, None, None, "none") is None
    for said, words in (
        ((cert, None, None, "none"), "needs its key"),
        ((None, None, ca, "none"), "add --tls-cert"),
        ((cert, key, None, "required"), "--tls-ca"),
        ((cert, key, ca, "maybe"), "tls_clients is one of"),
        ((cert, tmp_path / "none", None, "none"), "cannot read"),
        ((cert, cert, None, "none"), "no certificate and its"),
        ((cert, key, ca, "none", ca), "--tls-crl is about certificates of clients"),
        ((cert, key, ca, "required", tmp_path / "none"), "cannot read"),
        ((None, None, None, "none", ca), "add --tls-cert"),
    ):
        with pytest.raises(UsageError, match=words):
            tls_of(*said)
