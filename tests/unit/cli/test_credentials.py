"""Passwords of engines: where they come from, and how they get into a URL."""

from pathlib import Path

import pytest

from fencehold.cli.credentials import VARIABLE, password_of
from fencehold.drivers.address import with_password
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.errors import UsageError


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("etcd://app@a,b/locks", "etcd://app:p%40s%2Fs%3A%25@a,b/locks"),
        ("etcds://app@[::1]:2379?ca=/x@y", "etcds://app:p%40s%2Fs%3A%25@[::1]:2379?ca=/x@y"),
        ("postgresql://app@db/locks?options=x", "postgresql://app:p%40s%2Fs%3A%25@db/locks?options=x"),
        ("file:///var/lib/x", "file:///var/lib/x"),
        ("/var/lib/a@b", "/var/lib/a@b"),
        ("memory://", "memory://"),
    ],
)
def test_a_password_is_added_to_the_user(url: str, whole: str) -> None:
    """Encoded, whatever is in it; a journal without users has none."""
    assert with_password(url, "p@s/s:%") == whole


def test_the_engine_reads_it_as_it_was() -> None:
    """Nothing is lost on the way."""
    password = "ü p@s/s:?#%41"
    assert EtcdAddress.parse(with_password("etcd://app@a", password)).password == password


def test_without_a_password_the_url_stays_as_it_is() -> None:
    """With its own, if it has one."""
    assert with_password("etcd://app:x@a", "") == "etcd://app:x@a"


@pytest.mark.parametrize("url", ["etcd://a:2379/x", "etcds://a?ca=/x@y", "ETCD://a"])
def test_a_password_without_a_user_is_refused(url: str) -> None:
    """The message says what to write."""
    with pytest.raises(UsageError, match="USER@"):
        with_password(url, "hunter2")


def test_a_second_password_is_refused_and_not_shown() -> None:
    """Neither of them."""
    with pytest.raises(UsageError, match="twice") as refused:
        with_password("etcd://app:hunter2@a", "other")
    assert "hunter2" not in str(refused.value)
    assert "other" not in str(refused.value)


def test_it_is_the_first_line_of_a_file(tmp_path: Path) -> None:
    """Whatever ends that line."""
    file = tmp_path / "password"
    for content in (b"s3cret", b"s3cret\n", b"s3cret\r\nmore"):
        file.write_bytes(content)
        assert password_of(file) == "s3cret"


@pytest.mark.parametrize("content", [b"", b"\nx", b"\xff"])
def test_a_file_without_one_is_refused(tmp_path: Path, content: bytes) -> None:
    """By its name."""
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=str(file)):
        password_of(file)
    with pytest.raises(UsageError, match="No such file"):
        password_of(tmp_path / "nowhere")


def test_without_a_file_it_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or there is none."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert password_of(None) == ""
    monkeypatch.setenv(VARIABLE, "s3cret")
    assert password_of(None) == "s3cret"
