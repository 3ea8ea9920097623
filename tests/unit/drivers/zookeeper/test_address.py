"""Addresses: what a URL means, and what is wrong with those that mean nothing."""

from pathlib import Path

import pytest
import trustme

from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.engines.zookeeper import ZookeeperJournal
from fencehold.errors import UsageError


@pytest.mark.parametrize(
    ("url", "hosts", "root"),
    [
        ("zookeeper://a", ("a:2181",), "/fencehold"),
        ("zookeeper://a/", ("a:2181",), "/fencehold"),
        ("zookeeper://a:1,b,c:3/locks/eu", ("a:1", "b:2181", "c:3"), "/locks/eu"),
        ("zookeeper://[::1]:7,[::2],10.0.0.1/x/", ("[::1]:7", "[::2]:2181", "10.0.0.1:2181"), "/x"),
        ("zookeeper://a/with%20space", ("a:2181",), "/with space"),
    ],
)
def test_a_url_names_servers_and_a_root(url: str, hosts: tuple[str, ...], root: str) -> None:
    """Ports and the root may be left out; several hosts are separated by commas, IPv6 stands in brackets."""
    assert ZookeeperAddress.parse(url) == ZookeeperAddress(hosts, root)


def test_a_login_may_have_any_character_and_is_never_shown() -> None:
    """User and password are percent-decoded, and the password is in no text made of the address or the journal."""
    url = "zookeeper://al%40ice:s3%2Fcr%40t:x@a,b/root"
    address = ZookeeperAddress.parse(url)
    assert (address.user, address.password) == ("al@ice", "s3/cr@t:x")
    for text in (str(address), repr(address), repr(ZookeeperJournal.from_url(url))):
        assert "s3" not in text
        assert "a:2181,b:2181/root" in text or "'a:2181', 'b:2181'" in text


@pytest.mark.parametrize(
    "url",
    [
        "etcd://a",
        "zookeeper:a",
        "zookeeper://",
        "zookeeper:///root",
        "zookeeper://a:0",
        "zookeeper://a:70000",
        "zookeeper://a:b",
        "zookeeper://:2181",
        "zookeeper://a//b",
        "zookeeper://a/b/../c",
        "zookeeper://a/zookeeper/config",
        "zookeeper://a/nul%00",
        "zookeeper://s3cret@a",
        "zookeeper://:s3cret@a",
        "zookeeper://a?ca=/x",
        "zookeepers://a?password=s3cret",
        "zookeepers://a?ca=",
        "zookeepers://a?ca=/not/there",
        "zookeepers://a?key=/x",
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str) -> None:
    """What is wrong is said at once, and a password that was put in a wrong place is not repeated."""
    with pytest.raises(UsageError) as refused:
        ZookeeperAddress.parse(url)
    assert "s3cret" not in str(refused.value)


def test_tls_takes_files(tmp_path: Path) -> None:
    """Whom to trust and who we are come from files; a file that is no certificate is refused."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    address = ZookeeperAddress.parse(f"zookeepers://a/x?ca={tmp_path}/ca.pem&cert={tmp_path}/client.pem")
    assert address.tls is not None
    assert address.tls.check_hostname
    assert str(address) == "zookeepers://a:2181/x"
    (tmp_path / "bad.pem").write_text("no certificate")
    with pytest.raises(UsageError, match="TLS"):
        ZookeeperAddress.parse(f"zookeepers://a?ca={tmp_path}/bad.pem")
