"""`fencehold backup`: a backup of a running server, read piece by piece.

The file is what `journal export` would have written, had the server been stopped, and `journal import` reads it.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from fencehold import __version__
from fencehold.backup import write_snapshot
from fencehold.cli.backups import STANDARD, File, Force, check_output, say_written, written
from fencehold.cli.options import URL, Json, Url
from fencehold.cli.wire import Wire, connect, map_of, wired
from fencehold.errors import UsageError
from fencehold.journal.port import Snapshot
from fencehold.runtime.calendar import now_us
from fencehold.types import Epoch, Position

_BEGIN_S = 40.0
"""A server that takes a snapshot of its own finishes that first, and reports it before this timeout."""


def backup(file: File, force: Force = False, url: Url = URL, as_json: Json = False) -> None:
    """Back up a server while it runs: all sessions, holds and queues of one moment, in one file.

    The server keeps serving meanwhile. `fencehold journal import` starts an empty journal from the file. Of a
    service with several shards, each has a file of its own, with its number before the ending.
    """
    check_output(file, as_json)
    with wired(url) as wire:
        placed = map_of(wire)
        if placed is None:
            _back_up(file, force, wire, as_json)
            return
    if file == STANDARD:
        raise UsageError(f"this service has {placed.shards} shards, each with a backup of its own: name a file")
    for shard in range(placed.shards):
        each = file.with_name(f"{file.stem}.shard-{shard:04d}{file.suffix}")
        with closing(connect(url, shard=shard)) as wire:
            _back_up(each, force, wire, as_json)


def _back_up(file: Path, force: bool, wire: Wire, as_json: bool) -> None:
    with written(file, force=force) as sink:
        # Before the server is asked: fences after a restore depend on how long ago this was.
        asked_at_us = now_us()
        begun, snapshot = fetched(wire)
        contents = write_snapshot(
            snapshot,
            sink,
            engine=begun["engine"],
            epoch=Epoch(begun["epoch"]),
            now_us=asked_at_us,
            made_by=__version__,
        )
    say_written("backed up", file, contents, as_json)


def fetched(wire: Wire) -> tuple[dict[str, Any], Snapshot]:
    """All of a server's state at one position, and its description.

    Raises:
        Unavailable: the server cannot give one, or ended meanwhile.
        UsageError: it abandoned the backup, as this was too slow.
    """
    begun: dict[str, Any] = wire.call("NODE.BACKUP", timeout=_BEGIN_S)
    pieces = iter(lambda: wire.fetch("NODE.BACKUP", "NEXT"), None)
    return begun, Snapshot(Position(begun["position"]), b"".join(pieces))
