"""`fencehold audit`: verify an audit log, and read its end."""

import time
from collections import deque
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import Json
from fencehold.cli.output import clean, say, say_json, tell
from fencehold.errors import UsageError
from fencehold.security import audit_chain

Folder = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The log's directory, as given to `serve --audit-log`.")
]
_LOOK_S = 0.2


def verify(
    directory: Folder,
    expect: Annotated[
        str,
        typer.Option(
            "--expect",
            metavar="HASH",
            help="A hash noted earlier, which the log must contain.",
            show_default=False,
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Check that no record was changed, removed or inserted. Exits 65 if one was.

    Records that were cut off at the end leave no trace in what is left: note the last hash elsewhere from time to
    time, and give it as --expect.
    """
    _existing(directory)
    try:
        first, end = audit_chain.verify(directory)
    except audit_chain.BrokenChain as broken:
        raise fail(Exit.DAMAGED, f"the audit log is damaged: {broken}") from None
    if expect and expect != end.hash and not _is_there(directory, expect):
        raise fail(Exit.DAMAGED, "the audit log does not contain the record with that hash: its end was cut off")
    if as_json:
        say_json({"records": end.seq - first.seq, "first": first.seq + 1, "last": end.seq, "hash": end.hash})
    elif end.seq == first.seq:
        tell("no records")
    else:
        tell(
            f"{end.seq - first.seq} records are intact, from {first.seq + 1} to {end.seq}; the last has {end.hash}"
        )


def tail(
    directory: Folder,
    count: Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many records.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new records until ctrl-c.")] = False,
    as_json: Json = False,
) -> None:
    """Write the last records: as text, or with --json as they are."""
    _existing(directory)
    last = deque(audit_chain.lines(directory), maxlen=count)
    for _, line in last:
        _show(line, as_json)
    seq = msgspec.json.decode(last[-1][1])["seq"] if last else 0
    while follow:
        time.sleep(_LOOK_S)
        for _, line in audit_chain.lines(directory):
            if line.endswith(b"\n") and (here := msgspec.json.decode(line)["seq"]) > seq:
                seq = here
                _show(line, as_json)


def _existing(directory: Path) -> None:
    if not directory.is_dir():
        raise UsageError(f"there is no audit log in {directory}")


def _is_there(directory: Path, wanted: str) -> bool:
    return any(msgspec.json.decode(line)["prev"] == wanted for _, line in audit_chain.lines(directory))


def _show(line: bytes, as_json: bool) -> None:
    if as_json:
        say(line.decode().rstrip("\n"))
        return
    record: dict[str, Any] = msgspec.json.decode(line)
    who = record.get("principal") or record.get("client") or "-"
    known = f" ({record['known_by']})" if record.get("known_by") else ""
    names = ",".join(record.get("names", ()))
    fence = f" fence {record['fence']}" if record.get("fence") else ""
    what = record.get("outcome") or record.get("detail") or ("denied" if record["kind"] == "denied" else "")
    missed = f"{record['missed']} missed: " if record.get("missed") else ""
    words = (record["time"], f"{who}{known}", record.get("peer", "-"), record.get("verb", record["kind"]), names)
    say("\t".join(clean(word) for word in (*words, f"{missed}{what}{fence}")))


AUDIT = {"verify": verify, "tail": tail}
"""The commands of the group."""
