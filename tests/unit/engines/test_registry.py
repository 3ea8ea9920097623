"""The registry: which engine a URL means, what it cannot mean, and what of it is shown."""

import sys
from pathlib import Path

import pytest

from fencehold.drivers.address import shown
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal
from fencehold.engines.registry import SCHEMES, journal_of, path_of
from fencehold.errors import UsageError

DRIVEN = {
    "etcd://127.0.0.1:2379": ("fencehold.engines.etcd", "etcd"),
    "etcds://127.0.0.1:2379": ("fencehold.engines.etcd", "etcd"),
    "zookeeper://127.0.0.1:2181": ("fencehold.engines.zookeeper", "zookeeper"),
    "zookeepers://127.0.0.1:2181": ("fencehold.engines.zookeeper", "zookeeper"),
    "postgresql://127.0.0.1:5432/locks": ("fencehold.engines.postgres", "postgres"),
    "postgres://127.0.0.1:5432/locks": ("fencehold.engines.postgres", "postgres"),
}


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///var/lib/fencehold", "/var/lib/fencehold"),
        ("FILE:///var/lib/fencehold", "/var/lib/fencehold"),
        ("file://localhost/var/lib", "/var/lib"),
        ("file:///with%20space", "/with space"),
        ("/var/lib/fencehold", "/var/lib/fencehold"),
        (".fencehold", ".fencehold"),
        ("a:b", "a:b"),
    ],
)
def test_a_path_is_a_journal_in_files(url: str, path: str) -> None:
    """With file:// before it or without."""
    assert path_of(url) == path
    assert isinstance(journal_of(url), FileJournal)


def test_memory_is_a_journal_of_its_own_each_time() -> None:
    """Nothing is shared by name."""
    first, second = journal_of("memory://"), journal_of("memory://")
    assert isinstance(first, MemoryJournal)
    assert isinstance(second, MemoryJournal)
    assert first._store is not second._store
    assert path_of("memory://") is None


class Made:
    """Stands for an engine."""

    def __init__(self, url: str) -> None:
        self.url = url

    @classmethod
    def from_url(cls, url: str) -> "Made":
        return cls(url)


@pytest.mark.parametrize("url", DRIVEN)
def test_an_engine_is_asked_to_make_a_journal_of_its_url(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole URL is the engine's to read."""
    module = type(sys)("stand-in")
    for kind in ("EtcdJournal", "ZookeeperJournal", "PostgresJournal"):
        setattr(module, kind, Made)
    monkeypatch.setitem(sys.modules, DRIVEN[url][0], module)
    made = journal_of(url)
    assert isinstance(made, Made)
    assert made.url == url
    assert path_of(url) is None


@pytest.mark.parametrize("url", DRIVEN)
def test_a_missing_driver_says_what_to_install(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only who uses an engine needs its driver, and is told which extra brings it."""
    name, extra = DRIVEN[url]
    (tmp_path / "undriven.py").write_text("import a_driver_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        "fencehold.engines.registry.import_module", lambda asked: __import__("undriven") if asked == name else None
    )
    with pytest.raises(UsageError, match=rf"a_driver_that_is_not_there.*pip install 'fencehold\[{extra}\]'"):
        journal_of(url)


def test_a_bug_of_our_own_is_not_taken_for_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be imported of Fencehold itself comes out as it is."""

    def broken(name: str) -> None:
        raise ImportError("cannot import name", name="fencehold.engines.etcd.journal")

    monkeypatch.setattr("fencehold.engines.registry.import_module", broken)
    with pytest.raises(ImportError, match="cannot import name"):
        journal_of("etcd://127.0.0.1")


def test_an_unknown_engine_is_told_which_are_known() -> None:
    """All of them, and the password is not repeated."""
    with pytest.raises(UsageError) as told:
        journal_of("consul://user:hunter2@127.0.0.1")
    message = str(told.value)
    assert "consul://user:***@127.0.0.1" in message
    assert "hunter2" not in message
    assert all(f"{scheme}://" in message for scheme in SCHEMES if scheme != "postgres")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "etcd:127.0.0.1:2379",
        "postgresql:/locks",
        "Memory:",
        "file:relative",
        "file://relative/path",
        "file://",
        "file:///data?sync=no",
        "memory://shared",
    ],
)
def test_what_means_no_engine_is_refused(url: str) -> None:
    """A slip of the keyboard must not become a directory of that name."""
    with pytest.raises(UsageError):
        journal_of(url)


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("etcd://10.0.0.1:2379,10.0.0.2:2379/locks", "etcd://10.0.0.1:2379,10.0.0.2:2379/locks"),
        ("etcd://root:hunter2@10.0.0.1:2379", "etcd://root:***@10.0.0.1:2379"),
        ("etcd://root@10.0.0.1:2379", "etcd://root@10.0.0.1:2379"),
        ("postgresql://app:hunter2@db/locks?sslmode=require", "postgresql://app:***@db/locks?sslmode=require"),
        ("postgresql://db/locks?user=app&password=hunter2&x=1", "postgresql://db/locks?user=app&password=***&x=1"),
        ("postgresql://db/locks?sslpassword=hunter2#end", "postgresql://db/locks?sslpassword=***#end"),
        # Not percent-encoded, as they should be: hidden all the same.
        ("etcd://root:hun@ter2@10.0.0.1", "etcd://root:***@10.0.0.1"),
        ("etcd://root:hun/ter2@10.0.0.1", "etcd://root:***@10.0.0.1"),
        ("etcd://root:hun?ter2@10.0.0.1", "etcd://root:***@10.0.0.1"),
        ("etcd://root:hun:ter2@10.0.0.1", "etcd://root:***@10.0.0.1"),
        ("/var/lib/fencehold", "/var/lib/fencehold"),
    ],
)
def test_a_password_is_never_shown(url: str, safe: str) -> None:
    """Whatever else stands in the URL."""
    assert shown(url) == safe
