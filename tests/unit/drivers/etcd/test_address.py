"""The URL of a journal in etcd."""

from pathlib import Path

import pytest

from fencehold.drivers.address import TlsFiles
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.engines.etcd import EtcdJournal
from fencehold.errors import UsageError


def test_a_url_names_hosts_and_the_rest_has_defaults() -> None:
    """One host is enough: etcd's port, our prefix, no login, no TLS, and compacting."""
    assert EtcdAddress.parse("etcd://etcd.example") == EtcdAddress(
        ("etcd.example:2379",), "/fencehold/", "", "", None, True
    )


def test_a_url_says_everything() -> None:
    """Several hosts, IPv6 among them, a login with special characters, a prefix, TLS and its files."""
    url = "etcds://us%40er:p%40s%2Fs@10.0.0.1,[::1]:1234,c:99/team/locks/?ca=/ca.pem&cert=c.pem&key=k.pem&compact=false"
    assert EtcdAddress.parse(url) == EtcdAddress(
        ("10.0.0.1:2379", "[::1]:1234", "c:99"),
        "/team/locks/",
        "us@er",
        "p@s/s",
        TlsFiles(Path("/ca.pem"), Path("c.pem"), Path("k.pem")),
        False,
    )


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://host", "etcd://"),
        ("etcd:host", "etcd://"),
        ("etcd://", "no host"),
        ("etcd:///prefix", "no host"),
        ("etcd://a,b,a", "twice"),
        ("etcd://host:0", "port"),
        ("etcd://host:65536", "port"),
        ("etcd://host:http", "port"),
        ("etcd://:2379", "port"),
        ("etcd://user@host", "user:password"),
        ("etcd://user:@host", "user:password"),
        ("etcd://:word@host", "user:password"),
        ("etcd://host?ca=/ca.pem", "etcds://"),
        ("etcd://host?compact=maybe", "yes or no"),
        ("etcd://host?compact", "name=value"),
        ("etcd://host?color=red", "color="),
        ("etcds://host?tls=no", "leave one of them out"),
        ("etcds://host?key=k.pem", "cert=FILE"),
        ("etcd://user:half/other@host", "%2F"),
        ("etcd://user:half?other@host", "%3F"),
    ],
)
def test_a_wrong_url_is_told_what_is_wrong(url: str, says: str) -> None:
    """The message names what to write, and nothing of a password."""
    with pytest.raises(UsageError, match=says) as caught:
        EtcdAddress.parse(url)
    assert "half" not in str(caught.value)
    assert "other" not in str(caught.value)


def test_the_password_is_shown_nowhere() -> None:
    """Neither the address nor the journal shows it, whoever prints them."""
    address = EtcdAddress.parse("etcd://user:hunter2@host/prefix")
    shown = f"{address} {address!r} {EtcdJournal(address)!r} {EtcdJournal.from_url('etcd://user:hunter2@host')!r}"
    assert "hunter2" not in shown
    assert "etcd://host:2379/prefix" in shown
