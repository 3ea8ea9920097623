"""`fencehold sink`: deliver events to Kafka, Redis, NATS, a database, a file or a URL; and show the status of
that.

1. `sink run` is a follower of the service like any other, in its own process: a target that is away, slow or wrong
   affects no grant. `serve` starts those of its configuration beside itself, and they end with it.
2. SIGTERM and SIGINT end it after the batch in flight; the next run reads again what was not delivered.
3. With --lock it delivers only while it holds that lock: of several beside the nodes of a cluster, one at a time.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Json, Url
from fencehold.cli.output import ago, clean, say_json, say_rows
from fencehold.cli.server_process import log_to_stderr, loop_factory, tell
from fencehold.cli.sink_processes import STATUS_VARIABLE, TARGET_VARIABLE
from fencehold.cli.watch import place_of
from fencehold.drivers.address import shown
from fencehold.errors import HoldLost, UsageError
from fencehold.locks.views import WHOLE
from fencehold.observe.sink_status import usual_folder
from fencehold.sinks.follower import Follower
from fencehold.sinks.outbox import Bounds
from fencehold.sinks.port import Cursor
from fencehold.sinks.registry import sink_of
from fencehold.sinks.runner import BEGINNING, Runner

_STALE_S = 15.0
_NICE = 10

Directory = Annotated[
    Path | None,
    typer.Option(
        "--status",
        envvar=STATUS_VARIABLE,
        metavar="DIRECTORY",
        show_default="/tmp/fencehold-sinks-UID",
        help="Where sinks write their status.",
    ),
]


def run(
    target: Annotated[
        str, typer.Argument(envvar=TARGET_VARIABLE, metavar="TARGET", help="Where events go: kafka://…, redis://…")
    ],
    url: Url = URL,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Where to begin if the target has nothing yet: beginning, now, or POSITION[.INDEX].",
        ),
    ] = "beginning",
    prefix: Annotated[str, typer.Option(help="Only events of names with this prefix.")] = "",
    cluster: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the service in the source of events.")
    ] = "main",
    name: Annotated[str, typer.Option(metavar="NAME", help="The name of this sink in `sink status`.")] = "",
    status_: Directory = None,
    lock: Annotated[
        str, typer.Option(metavar="LOCK", help="Deliver only while holding this lock, as one of several sinks.")
    ] = "",
    any_node: Annotated[
        bool, typer.Option("--standby/--leader", help="Read from a standby if there is one, or from the leader.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Write the log as lines of JSON.")] = False,
    with_parent: Annotated[
        bool, typer.Option("--with-parent", hidden=True, help="End when standard input is closed.")
    ] = False,
) -> None:
    """Deliver events to a target until ctrl-c: what the target does not have yet, then as they happen."""
    _check_cluster(cluster)
    sink = sink_of(target, cluster)
    called = name or sink.declared.name
    runner = Runner(
        Follower(url, prefix=prefix, prefers_standby=any_node),
        sink,
        cluster=cluster,
        start=_start(start),
        bounds=Bounds(),
        status=status_directory(status_, make=True) / f"{called}.json",
        name=called,
    )
    log_to_stderr(as_json)
    facts = {"sink": called, "target": shown(target), "delivery": sink.declared.delivery.value, "pid": os.getpid()}
    tell("carrying", **facts)
    with asyncio.Runner(loop_factory=loop_factory()) as loop:
        loop.run(_Carrying(runner, url, lock, with_parent=with_parent).run())
    tell(
        "stopped",
        sink=called,
        **{key: runner.facts()[key] for key in ("delivered", "waiting", "cursor", "cursors")},
    )


def status(status_: Directory = None, as_json: Json = False) -> None:
    """Show the status of the sinks on this machine: delivered, retried, dropped, gaps and lag."""
    found = sorted(status_directory(status_, make=False).glob("*.json"))
    sinks = [facts for facts in map(_read, found) if facts is not None]
    if as_json:
        say_json({"sinks": sinks})
        return
    heads = (
        "SINK",
        "STATE",
        "DELIVERED ",
        "RETRIED ",
        "DROPPED ",
        "GAPS ",
        "WAITING ",
        "LAG ",
        "CURSOR ",
        "ERROR",
    )
    say_rows(
        heads, [_row(facts) for facts in sinks], empty="no sink writes its status here: fencehold sink run TARGET"
    )


SINK: dict[str, Callable[..., None]] = {"run": run, "status": status}


def status_directory(said: Path | None, *, make: bool) -> Path:
    """Where sinks of this user write their status."""
    path = said or usual_folder()
    if make:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise fail(Exit.USAGE, f"cannot make {path}: {error.strerror}", "choose another --status") from None
        if said is None and path.stat().st_uid != os.getuid():
            raise fail(Exit.USAGE, f"{path} belongs to another user", "choose another --status")
    return path


def _check_cluster(name: str) -> None:
    if not name or len(name) > 64 or not all(each.isalnum() or each in "-_." for each in name):
        raise UsageError(f"the name of a cluster has letters, digits and -_. only, at most 64: {name!r}")


def _start(said: str) -> Cursor | None:
    if said == "now":
        return None
    return BEGINNING if said == "beginning" else place_of(said)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
        silent_s = time.time() - facts["written_unix"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    facts["state"] = _state(facts, silent_s)
    return facts


def _state(facts: dict[str, Any], silent_s: float) -> str:
    if not facts["running"]:
        return "ended"
    if silent_s > _STALE_S:
        return "silent"
    return "retrying" if facts["error"] else "well" if facts["reads_from"] else "looking for a node"


def _row(facts: dict[str, Any]) -> tuple[Any, ...]:
    position, index = facts["cursor"] or (None, None)
    cursor = "" if position is None else str(position) if index == WHOLE else f"{position}.{index}"
    if facts.get("shards", 1) > 1:
        cursor = f"of {facts['shards']} shards"
    counts = tuple(facts[key] for key in ("delivered", "retried", "dropped", "gaps", "waiting"))
    return facts["name"], facts["state"], *counts, ago(1000 * facts["lag_s"]), cursor, _why(facts)


def _why(facts: dict[str, Any]) -> str:
    """What is wrong with its target, or with the service it reads."""
    return clean(facts["error"] or facts.get("service_error") or "")


class _Carrying:
    """One sink, from its start to its end."""

    def __init__(self, runner: Runner, url: str, lock: str, *, with_parent: bool) -> None:
        self._runner = runner
        self._url = url
        self._lock = lock
        self._with_parent = with_parent
        self._task: asyncio.Task[None] | None = None
        # Where both want the same core, a node comes first: catching up after a target was away takes much
        # processor.
        os.nice(_NICE)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if self._with_parent:
            loop.add_reader(sys.stdin.fileno(), self._on_parent)
        self._task = asyncio.create_task(self._carry())
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _carry(self) -> None:
        async with self._alone():
            await self._runner.run()

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """While it is the only one, of those that share a lock."""
        if not self._lock:
            yield
            return
        from fencehold import aio  # noqa: PLC0415

        try:
            name = f"fencehold sink {self._lock}"
            async with aio.connect(self._url, name=name) as client, client.lock(self._lock):
                tell("turn", lock=self._lock)
                yield
        except HoldLost as lost:
            # The next one continues where the target says.
            raise fail(Exit.UNAVAILABLE, f"another sink is delivering: {lost}") from None

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _on_parent(self) -> None:
        if not os.read(sys.stdin.fileno(), 1 << 10):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._stop()
