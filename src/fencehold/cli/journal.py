"""`fencehold journal`: back up a journal, move it to another engine, inspect one.

1. Writes are atomic: a backup gets its name at the end, a journal is started in one step, and before that the
   whole backup is read and checked.
2. Existing files and journals are not overwritten, unless the user says so.
3. A password in a URL is never shown.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fencehold import __version__
from fencehold.backup import Contents, Head, Loaded, export, fence_after, load, restore, survey
from fencehold.cli.backups import (
    File,
    Force,
    check_output,
    contents_shape,
    name_of,
    progress,
    read,
    say_written,
    summary,
    written,
)
from fencehold.cli.credentials import password_of
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import Json
from fencehold.cli.output import ago, clean, note, say_facts, say_json, tell
from fencehold.cli.shapes import instant
from fencehold.drivers.address import shown, with_password
from fencehold.engines.registry import journal_of, path_of, shard_path
from fencehold.errors import AlreadyOwned, OutcomeUnknown, UsageError
from fencehold.journal.port import Journal
from fencehold.runtime.calendar import now_us

Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        envvar="FENCEHOLD_ENGINE",
        metavar="URL",
        help="The journal: a data directory, etcd://…, zookeeper://… or postgresql://….",
        show_default=False,
    ),
]
Shard = Annotated[
    int,
    typer.Option(
        "--shard", metavar="N", min=0, help="Of several shards, the journal of this one.", show_default="0"
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--engine-password-file",
        envvar="FENCEHOLD_ENGINE_PASSWORD_FILE",
        metavar="FILE",
        help="The password of the user that --engine names; or set $FENCEHOLD_ENGINE_PASSWORD.",
        show_default=False,
    ),
]


def export_(
    file: File,
    engine: Engine,
    engine_password_file: PasswordFile = None,
    shard: Shard = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the whole content of a journal to one file.

    A cluster may keep serving: reading does not disturb the leader. A server that keeps its journal in a
    directory owns it: use `fencehold backup` while it runs.
    """
    check_output(file, as_json)
    journal = _existing(engine, engine_password_file, shard)
    with _told(engine), written(file, force=force) as sink, progress("reading", wanted=not as_json) as on_progress:
        contents, notes = asyncio.run(
            export(journal, sink, now_us=now_us(), made_by=__version__, on_progress=on_progress)
        )
    _say_repaired(notes)
    say_written("exported", file, contents, as_json)


def import_(
    file: File,
    engine: Engine,
    engine_password_file: PasswordFile = None,
    fence_above: Annotated[
        int | None,
        typer.Option(
            "--fence-above", metavar="N", min=0, help="Start all fences above this one, too.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start an empty journal from a backup.

    The backup is read whole first: one that is damaged changes nothing. Fences continue far above those in it, so
    that none that was granted since it was made is granted again. The backup of a shard goes where that shard has
    its journal.
    """
    _fillable(engine, engine_password_file, 0)
    loaded = _loaded(file, as_json)
    contents = loaded.contents
    home = loaded.replay.machine.state.home
    shard = 0 if home is None else home.shard
    journal = _fillable(engine, engine_password_file, shard)
    fence = fence_after(loaded.head, now_us=now_us(), above=fence_above)
    _make_way(engine, shard)
    with _told(engine):
        restored = asyncio.run(restore(journal, loaded, fence))
    if as_json:
        say_json({"url": shown(engine), **restored._asdict(), "backup": _facts(loaded.head, contents)})
        return
    tell(f"imported {summary(contents)} into {shown(engine)}")
    tell(f"every fence from now on is above {restored.fence}")
    _warn(contents)


def info(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A backup; - is stdin.", show_default=False)
    ] = None,
    engine: Engine = "",
    engine_password_file: PasswordFile = None,
    shard: Shard = 0,
    as_json: Json = False,
) -> None:
    """Show what is in a backup, or in a journal. It is read to its end, and checked."""
    if file is None:
        facts = _facts_of_journal(engine, engine_password_file, shard, as_json)
    elif engine and not _is_from_environment(context, "engine"):
        raise UsageError("a backup or a journal: give FILE or --engine, not both")
    else:
        loaded = _loaded(file, as_json)
        facts = {"file": str(file), **_facts(loaded.head, loaded.contents)}
    if as_json:
        say_json(facts)
    else:
        say_facts(facts)


JOURNAL = {"export": export_, "import": import_, "info": info}
"""The commands of the group."""


def _loaded(file: Path, as_json: bool) -> Loaded:
    with read(file) as source, progress("checking", wanted=not as_json) as on_progress:
        return load(source, name_of(file), on_progress)


def _facts_of_journal(engine: str, password_file: Path | None, shard: int, as_json: bool) -> dict[str, Any]:
    if not engine:
        raise UsageError("give the FILE of a backup, or the --engine that keeps a journal")
    journal = _existing(engine, password_file, shard)
    with _told(engine), progress("reading", wanted=not as_json) as on_progress:
        contents, notes = asyncio.run(survey(journal, on_progress))
    _say_repaired(notes)
    return {"url": shown(engine), **contents_shape(contents)}


def _facts(head: Head, contents: Contents) -> dict[str, Any]:
    return {"made_at": instant(head.made_at_us // 1_000), "made_by": head.made_by, **contents_shape(contents)}


def _say_repaired(notes: tuple[str, ...]) -> None:
    for repaired in notes:
        note(f"repaired: {repaired}")


def _warn(contents: Contents) -> None:
    longest = f"; the longest in the backup is {ago(contents.ttl_ms_longest)}" if contents.ttl_ms_longest else ""
    note(f"\nClients of the service as it was may trust what they hold for their ttl{longest}.")
    note("Start to serve when that has passed since it stopped, or when those clients are stopped.")


def _is_from_environment(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "ENVIRONMENT"


def _existing(engine: str, password_file: Path | None, shard: int) -> Journal:
    """A journal to read: creating an empty one would not help."""
    path = path_of(engine)
    if path is not None and not os.path.isdir(shard_path(path, shard)):
        raise UsageError(f"{clean(shard_path(path, shard))} is not a journal: there is no such directory")
    return _journal(engine, password_file, shard)


def _fillable(engine: str, password_file: Path | None, shard: int) -> Journal:
    """A journal to start from a backup; it must outlive this command."""
    journal = _journal(engine, password_file, shard)
    if not journal.declared.durable:
        raise UsageError(f"{shown(engine)} keeps nothing: all would be gone with this command")
    return journal


def _journal(engine: str, password_file: Path | None, shard: int) -> Journal:
    if path_of(engine) is not None:
        # Files have no password: one that is in the environment is for another engine.
        return journal_of(engine, shard)
    return journal_of(with_password(engine, password_of(password_file)), shard)


def _make_way(engine: str, shard: int) -> None:
    """Make the directories above the journal's own, which its engine makes."""
    path = path_of(engine)
    if path is None:
        return
    above = os.path.dirname(os.path.abspath(shard_path(path, shard)))
    try:
        os.makedirs(above, exist_ok=True)
    except OSError as error:
        raise fail(Exit.UNAVAILABLE, f"cannot make {clean(above)}: {error.strerror}") from None


@contextlib.contextmanager
def _told(engine: str) -> Iterator[None]:
    """The error of a journal, with a hint."""
    try:
        yield
    except AlreadyOwned as error:
        hint = "while that server runs, ask it: fencehold backup FILE; or stop it, then try again"
        raise fail(Exit.UNAVAILABLE, str(error), hint) from None
    except OutcomeUnknown as error:
        hint = f"look whether it is there: fencehold journal info --engine {shown(engine)}"
        raise fail(Exit.UNKNOWN, str(error), hint) from None
