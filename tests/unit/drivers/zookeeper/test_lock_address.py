"""Addresses of ensembles: what a URL says, and what is wrong with it."""

import pytest
import trustme

from fencehold.backends.port import Settings
from fencehold.backends.registry import backend_of
from fencehold.backends.zookeeper import ROOT
from fencehold.backends.zookeeper.backend import ZookeeperBackend
from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.errors import UsageError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("zookeeper://a", ZookeeperAddress(("a:2181",), ROOT)),
        ("zk://a:1,b:2/locks/here", ZookeeperAddress(("a:1", "b:2"), "/locks/here")),
        ("zookeeper://[::1]:7,[::2]", ZookeeperAddress(("[::1]:7", "[::2]:2181"), ROOT)),
        ("zookeeper://al%40x:s%3Ap@a/", ZookeeperAddress(("a:2181",), ROOT, user="al@x", password="s:p")),
    ],
)
def test_a_url_says_where_and_who(url: str, expected: ZookeeperAddress) -> None:
    """The port and the root may be left out."""
    assert ZookeeperAddress.parse(url, ROOT) == expected


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://",
        "zookeeper:///root",
        "zookeeper://a:x",
        "zookeeper://a:0",
        "zookeeper://a//b",
        "zookeeper://a/../b",
        "zookeeper://a/zookeeper/x",
        "zookeeper://user@a",
        "zookeeper://a?x=1",
        "zookeeper://a?tls=maybe",
        "zookeepers://a?tls=no",
        "zookeeper://a?ca=/etc/hosts",
        "zookeeper://a?tls=yes&ca=/does/not/exist",
        "zookeeper://a?tls=yes&key=/etc/hosts",
        "redis://a",
    ],
)
def test_what_makes_no_sense_is_said_at_once(url: str) -> None:
    """Before any server is asked."""
    with pytest.raises(UsageError):
        ZookeeperAddress.parse(url, ROOT)


def test_tls_is_asked_for_by_the_url(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With whom to trust, and who we are."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    assert (
        ZookeeperAddress.parse(f"zk://a?tls=yes&ca={folder}/ca.pem&cert={folder}/client.pem", ROOT).tls is not None
    )
    assert ZookeeperAddress.parse("zk://a?tls=yes", ROOT).tls is not None
    assert ZookeeperAddress.parse("zk://a", ROOT).tls is None


def test_a_password_is_in_no_text() -> None:
    """Whatever is shown of an address."""
    address = ZookeeperAddress.parse("zookeeper://alice:s3cret@a/root", ROOT)
    assert "s3cret" not in f"{address} {address!r}"
    with pytest.raises(UsageError) as error:
        ZookeeperAddress.parse("zookeeper://alice:s3cret@", ROOT)
    assert "s3cret" not in str(error.value)


def test_the_registry_knows_it_by_both_schemes() -> None:
    """And what it guarantees is known before anything is connected to."""
    for scheme in ("zookeeper", "zk"):
        made = backend_of(f"{scheme}://a", Settings(ttl=7))
        assert isinstance(made, ZookeeperBackend)
        assert made.guarantees.frees_on_crash == 7
