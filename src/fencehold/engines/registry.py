"""The registry: which engine a URL means. The one place that knows them all.

1. An engine, and the driver it needs, is imported when its URL is seen, and not before.
2. What a URL cannot mean is a `UsageError` that says what it could.
3. A password is for the engine alone: a URL is shown as `drivers.address.shown` has it.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from fencehold.drivers.address import Scheme, parts_of, shown
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import UsageError
from fencehold.journal.port import Journal


class Driven(NamedTuple):
    """An engine that needs a driver: where it is, and the extra that installs the driver."""

    module: str
    kind: str
    extra: str


_ETCD = Driven("fencehold.engines.etcd", "EtcdJournal", "etcd")
_ZOOKEEPER = Driven("fencehold.engines.zookeeper", "ZookeeperJournal", "zookeeper")
_POSTGRES = Driven("fencehold.engines.postgres", "PostgresJournal", "postgres")
_DRIVEN = {
    "etcd": _ETCD,
    "etcds": _ETCD,
    "zookeeper": _ZOOKEEPER,
    "zookeepers": _ZOOKEEPER,
    "zk": _ZOOKEEPER,
    "zks": _ZOOKEEPER,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
}

SCHEMES = ("memory", "file", *_DRIVEN)
KNOWN = (
    "memory://, file:///path (or just the path), etcd://host:port,…, etcds://…, zookeeper://host:port,… "
    "(or zk://), zookeepers://… (or zks://), postgresql://…"
)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_MISTYPED = re.compile(rf"({'|'.join(SCHEMES)}):", re.IGNORECASE)
_FILE = Scheme(
    names=("file",),
    form="file:///path, or just the path",
    port=1,
    takes_tls=False,
    hosts_min=0,
)


def journal_of(url: str, shard: int = 0) -> Journal:
    """A handle on the journal that a URL names, not opened yet; with a shard, on the one of that shard.

    The first shard's is where that of a service with one shard is: so one that was made with another number of
    shards is always found, and refused.

    Raises:
        UsageError: no engine is known by that name, its driver is not installed, or the URL is not one of its.
    """
    path = path_of(url)
    if path is not None:
        return FileJournal(shard_path(path, shard))
    scheme = _scheme_of(url)
    if scheme == "memory":
        return _memory(url)
    if scheme not in _DRIVEN:
        raise UsageError(f"no engine is known as {scheme}:// ({shown(url)}); known are {KNOWN}")
    kind = _imported(_DRIVEN[scheme])
    journal: Journal = kind.from_url(url, shard) if shard else kind.from_url(url)
    return journal


def shard_path(path: str | Path, shard: int) -> str | Path:
    """The directory of a shard's journal, within that of the first one's."""
    return Path(path) / f"shard-{shard:04d}" if shard else path


def path_of(url: str) -> str | None:
    """The directory of a journal that is kept in files; None if the URL names another engine."""
    scheme = _scheme_of(url)
    if scheme is None:
        if not url or _MISTYPED.match(url):
            raise UsageError(f"{shown(url)!r} is not an engine; write one of {KNOWN}")
        return url
    return _path_in(url) if scheme == "file" else None


def _scheme_of(url: str) -> str | None:
    found = _SCHEME.match(url)
    return found[1].lower() if found else None


def _path_in(url: str) -> str:
    said = _FILE.parse(url)
    if [each.host for each in said.endpoints] not in ([], ["localhost"]) or not parts_of(url).path:
        raise said.refusal(f"it names no directory; write {_FILE.form}")
    return f"/{said.path}"


def _memory(url: str) -> MemoryJournal:
    if any(parts_of(url)[1:]):
        raise UsageError(f"{shown(url)}: memory has no address; write memory://")
    return MemoryJournal(MemoryStore())


def _imported(driven: Driven) -> Any:
    try:
        module = import_module(driven.module)
    except ImportError as error:
        if (error.name or "").startswith("fencehold"):
            raise
        raise UsageError(
            f"the driver of the {driven.extra} engine is missing ({error.name or error}): "
            f"pip install 'fencehold[{driven.extra}]'"
        ) from error
    return getattr(module, driven.kind)
