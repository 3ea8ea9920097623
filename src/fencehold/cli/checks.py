"""Checks: each examines one thing and reports ok, warn or fail, with what to do. None changes anything."""

import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fencehold import __version__
from fencehold.cli import engine_checks, load_checks, security_checks
from fencehold.cli.cluster_checks import cluster
from fencehold.cli.findings import Finding
from fencehold.cli.survey import survey
from fencehold.cli.wire import CannotConnect, Wire, connect, facts
from fencehold.errors import FenceholdError, PermissionDenied
from fencehold.runtime.disk import Disk

_SYNCS = 50
_RECORD = b"\0" * 512
_FILES_WANTED = 16_384
_SLOW_TRIP_MS = 5.0


def all_findings(url: str, data: Path | None) -> Iterator[Finding]:
    """Every check, in order of importance. A disk of this machine is tested only if it is named."""
    yield from server(url)
    yield from nodes(url)
    yield from security_checks.own_files(url)
    yield clock()
    if data is not None:
        yield from disk(data)
    yield open_files()
    yield from installed()


def server(url: str) -> Iterator[Finding]:
    """Is a server there, does it lead, what is its position?"""
    try:
        wire = connect(url, patience_s=0)
    except CannotConnect as error:
        yield Finding("server", "fail", str(error), error.hint)
        return
    except FenceholdError as error:
        yield Finding("server", "fail", str(error))
        return
    try:
        known = facts(wire)
        yield _version(str(known["fencehold_version"]), str(known.get("build", "")), str(wire.endpoint))
        leads = known["role"] == "leader"
        advice = "" if leads else "it is starting, or its journal fails: see its log"
        yield Finding("role", "ok" if leads else "warn", f"{known['role']}, epoch {known['epoch']}", advice)
        yield _engine(str(known["engine"]), bool(known["durable"]))
        yield _round_trip([_timed_ms(lambda: wire.call("PING")) for _ in range(20)])
        yield from security_checks.server(known, wire.certificate)
        yield from load_checks.clients(known)
        yield from _inside(wire)
    except FenceholdError as error:
        yield Finding("server", "fail", str(error), "see the server's log")
    finally:
        wire.close()


def _inside(wire: Wire) -> Iterator[Finding]:
    """What only an administrator may see: its work, and the storage of its journal."""
    try:
        health = wire.call("NODE.HEALTH")
    except PermissionDenied as denied:
        advice = "log in as an administrator to have its work and its storage checked, too"
        yield Finding("inside", "warn", f"not checked: {denied}", advice)
        return
    yield from load_checks.work(health)
    yield from engine_checks.engine(health)


def _version(theirs: str, build: str, where: str) -> Finding:
    advice = "" if theirs == __version__ else f"this command is {__version__}: upgrade the older one"
    said = f"fencehold {theirs}{', compiled,' if build == 'compiled' else ''} at {where}"
    return Finding("server", "warn" if advice else "ok", said, advice)


def nodes(url: str) -> Iterator[Finding]:
    """Findings about nodes that share a journal; none for a single server."""
    try:
        seen = survey(url)
    except FenceholdError:
        # Reported before, for the server.
        return
    if any(node.node for node in seen.nodes):
        yield from cluster(seen)


def _engine(engine: str, durable: bool) -> Finding:
    if durable:
        return Finding(
            "engine", "ok", f"{engine}: what is answered is {'on the disk' if engine == 'file' else 'in it'}"
        )
    return Finding(
        "engine", "warn", f"{engine}: nothing survives the process", "start it with --data for real work"
    )


def _round_trip(took_ms: list[float]) -> Finding:
    middle, worst = statistics.median(took_ms), max(took_ms)
    slow = middle > _SLOW_TRIP_MS
    advice = "every acquire takes at least that long: move the client nearer" if slow else ""
    return Finding("round trip", "warn" if slow else "ok", f"p50 {middle:.2f} ms, worst {worst:.2f} ms", advice)


def _timed_ms(action: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    action()
    return (time.perf_counter() - started_at) * 1000


def clock() -> Finding:
    """Leases are counted on the monotonic clock."""
    known = time.get_clock_info("monotonic")
    fine = known.monotonic and known.resolution <= 0.001
    source = _text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    said = f"monotonic, resolution {known.resolution * 1e9:.0f} ns" + (f", source {source}" if source else "")
    return Finding("clock", "ok" if fine else "fail", said, "" if fine else "leases need a finer clock")


def disk(data: Path) -> Iterator[Finding]:
    """Is synced data really durable here, how long does a sync take, and is there room?"""
    place = _existing(data.expanduser().absolute())
    volume = Disk().volume(str(place))
    yield engine_checks.file_system(volume.file_system, volume.path)
    yield engine_checks.room(volume.free_bytes, volume.total_bytes, volume.path)
    yield _syncing(place)


def _existing(path: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    return next(place for place in (path, *path.parents) if place.is_dir())


def _syncing(place: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            took_ms = [_timed_ms(lambda: _sync(file.fileno())) for _ in range(_SYNCS)]
    except OSError as error:
        return Finding("fdatasync", "fail", f"{place}: {error.strerror}", "the server needs to write there")
    return engine_checks.syncing("fdatasync", statistics.median(took_ms), max(took_ms), _SYNCS)


def _sync(fd: int) -> None:
    os.write(fd, _RECORD)
    os.fdatasync(fd)


def open_files() -> Finding:
    """Every client is an open file. The server takes the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = hard != resource.RLIM_INFINITY and hard < _FILES_WANTED
    advice = f"a server here serves fewer than {hard} clients: raise the limit (ulimit -Hn)" if few else ""
    return Finding("open files", "warn" if few else "ok", f"soft {soft}, hard {hard}", advice)


def installed() -> Iterator[Finding]:
    """Python, and what makes the server and the clients fast."""
    yield Finding("python", "ok", f"{platform.python_implementation()} {platform.python_version()}")
    for package, use in (("uvloop", "the server is slower"), ("hiredis", "nothing can be parsed")):
        try:
            yield Finding(package, "ok", version(package))
        except PackageNotFoundError:
            advice = f"without it {use}: pip install 'fencehold[server]'"
            yield Finding(package, "warn", "not installed", advice)


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
