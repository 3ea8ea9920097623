"""The audit log: who did what, from where, and with what outcome, in lines of JSON chained by hashes.

1. What the machine did is derived from the entries that were applied, on every node, also after a restart: so no
   command can go unrecorded. What a log misses since it was last written is taken from the journal, as far as that
   goes back. Denials and acts of administrators are added as they happen.
2. Each record has a number and the hash of the line before (`prev`). A line that was changed, removed or inserted
   breaks the chain, across rotated files, too. Lines cut off at the end do not: note the last hash elsewhere.
   `audit_chain` reads and checks it.
3. No request waits for it. Records wait in a bounded buffer and are written by a thread. What finds no room there,
   or on a full disk, is lost and counted: a record `gap` says how many, as soon as one can be written. Serving
   continues.
4. Files are bounded in size and number; the oldest are deleted.
5. Only the listed fields of a command are written, and never its secret.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fencehold.core.commands import Break, Command, Entry, OpenSession, Refuse, Renew, Settle, Suspend
from fencehold.core.outcomes import Applied, HoldEnded, Notice, Opened, Outcome, Refused, SessionEnded, WaitEnded
from fencehold.errors import UsageError
from fencehold.security.audit_chain import CURRENT, End, end_of, files, opened, without_torn_line

_RETRY_S = 1.0
_SILENT = (Renew, Settle, Suspend)
"""What keeps sessions alive, and is not worth a record."""
_LOG = logging.getLogger("fencehold")


class Bounds(NamedTuple):
    """What an audit log may take."""

    file_bytes_max: int = 64 << 20
    files_max: int = 16
    """Beyond, the oldest is deleted."""
    waiting_max: int = 65_536
    """Pending things to write; beyond, they are lost, and counted."""


class Who(NamedTuple):
    """The client behind a session, as far as this node knows."""

    principal: str = ""
    known_by: str = ""
    peer: str = ""
    client: str = ""
    library: str = ""
    via: str = ""
    """The listener, if it has passed on its client's address and is trusted."""


UNKNOWN = Who()


class Told(NamedTuple):
    """A record made as it happened: a denial, or an act of an administrator."""

    kind: str
    who: Who
    verb: str
    names: tuple[str, ...] = ()
    detail: str = ""


class Done(NamedTuple):
    """An entry that was applied."""

    tier: str
    entry: Entry
    applied: Applied


Thing = Told | Done


class AuditLog:
    """An audit log in a directory, and the thread that writes it."""

    def __init__(
        self, folder: Path, bounds: Bounds | None = None, *, node: str = "", now: Callable[[], float] = time.time
    ) -> None:
        """Open it, or begin it.

        Raises:
            UsageError: it cannot be read or written.
        """
        self.folder = folder
        self.node = node
        self.bounds = bounds or Bounds()
        self.missed = 0
        """Things that were not written, since it was opened."""
        self.records = 0
        """Records that were."""
        self._now = now
        self._who: dict[int, Who] = {}
        self._waiting: deque[Thing] = deque()
        self._waiting_count = 0
        self._unwritten = 0
        """Things that were lost since the last record."""
        self._reason = ""
        self._wake = threading.Condition()
        self._closing = False
        self._idle = threading.Event()
        self._idle.set()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._end = end_of(folder)
            self._file = opened(folder / CURRENT)
            self._size = without_torn_line(self._file)
        except OSError as error:
            raise UsageError(f"cannot write an audit log in {folder}: {error.strerror}") from None
        self._position, self._there = self._end.position, self._end.there
        """The last position in it, and how many records of that there are."""
        self._thread = threading.Thread(target=self._run, name="fencehold audit", daemon=True)
        self._thread.start()

    # Reported on the event loop.

    def know(self, session: int, who: Who) -> None:
        """The client behind a session."""
        self._who[session] = who

    def on_entry(self, tier: str, entry: Entry, applied: Applied) -> None:
        """An entry was applied, and is durable."""
        if entry.commands or applied.notices:
            self._add(Done(tier, entry, applied), len(entry.commands) + len(applied.notices))

    def tell(self, told: Told) -> None:
        """A client was denied something, or an administrator did something."""
        self._add(told, 1)

    def _add(self, thing: Thing, count: int) -> None:
        with self._wake:
            if self._waiting_count + count > self.bounds.waiting_max:
                self._miss(count, "too much happened at once")
                return
            self._waiting.append(thing)
            self._waiting_count += count
            self._idle.clear()
            self._wake.notify()

    def _miss(self, count: int, reason: str) -> None:
        self.missed += count
        self._unwritten += count
        self._reason = reason

    # Lifecycle.

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was reported is written; returns whether it is."""
        return self._idle.wait(timeout_s)

    def close(self) -> None:
        """Write what is pending, and end."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=10.0)
        os.close(self._file)

    # On its thread.

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closing and not self._unwritten:
                    self._idle.set()
                    self._wake.wait()
                things, self._waiting, self._waiting_count = self._waiting, deque(), 0
                if not things and not self._unwritten:
                    break
            is_written = self._write(things)
            if not is_written:
                if self._closing:
                    break
                time.sleep(_RETRY_S)
        self._idle.set()

    def _write(self, things: deque[Thing]) -> bool:
        """Write them; if that fails they are lost, and nothing of them is left behind."""
        end = self._end
        with self._wake:
            missed, reason = self._unwritten, self._reason
        lines: list[bytes] = []
        if missed:
            end = self._line(lines, end, {"kind": "gap", "missed": missed, "detail": reason})
        for thing in things:
            for record in self._records(thing):
                end = self._line(lines, end, record)
        try:
            self._put(b"".join(lines))
        except OSError as error:
            self._on_failed(things, error)
            return False
        self._end = end
        self.records += len(lines)
        with self._wake:
            self._unwritten -= missed
        return True

    def _line(self, lines: list[bytes], end: End, record: dict[str, Any]) -> End:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._now())) + "Z"
        whole = {"seq": end.seq + 1, "time": at, "node": self.node, **record, "prev": end.hash}
        line = msgspec.json.encode(whole)
        lines.append(line + b"\n")
        return end.after(whole, line)

    def _put(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self.bounds.file_bytes_max:
            self._rotate()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            # Half of a line would break the chain for good.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _rotate(self) -> None:
        os.replace(self.folder / CURRENT, self.folder / f"audit-{self._end.seq:012d}.log")
        os.close(self._file)
        self._file = opened(self.folder / CURRENT)
        self._size = 0
        for old in files(self.folder)[: -self.bounds.files_max]:
            old.unlink(missing_ok=True)

    def _on_failed(self, things: deque[Thing], error: OSError) -> None:
        count = sum(_count(thing) for thing in things)
        with self._wake:
            is_first = not self._unwritten
            self._miss(count, f"could not be written: {error.strerror}")
        if is_first:
            _LOG.error("audit_failed", extra={"facts": {"folder": str(self.folder), "why": error.strerror}})

    # Records.

    def _records(self, thing: Thing) -> Iterator[dict[str, Any]]:
        if isinstance(thing, Told):
            yield _shown(thing.kind, thing.who, verb=thing.verb, names=thing.names, detail=thing.detail)
        elif thing.tier == "EFFICIENCY":
            yield from self._of_entry(thing)
        elif thing.applied.position >= self._position:
            # A crash may have left the first records of an entry, and not the others.
            is_partly_there = thing.applied.position == self._position
            yield from islice(self._of_entry(thing), self._there if is_partly_there else 0, None)
            self._there = 1 << 62

    def _of_entry(self, done: Done) -> Iterator[dict[str, Any]]:
        entry, applied = done.entry, done.applied
        where = {"position": applied.position, "tier": done.tier}
        if done.tier != "EFFICIENCY":
            if self._position and applied.position > self._position + 1 and not self._has_seen:
                missed = applied.position - self._position - 1
                yield {"kind": "gap", "detail": f"{missed} entries are in a snapshot", **where}
            self._has_seen = True
            self._position = applied.position
        repeated = frozenset(applied.repeated)
        for index, (command, outcome) in enumerate(zip(entry.commands, applied.outcomes, strict=True)):
            if index not in repeated and not isinstance(command, _SILENT):
                yield self._of_command(command, outcome) | where
        for _, notice in applied.notices:
            yield self._of_notice(notice) | where

    _has_seen = False

    def _of_command(self, command: Command, outcome: Outcome) -> dict[str, Any]:
        session = outcome.session if isinstance(outcome, Opened) else getattr(command, "session", 0)
        if isinstance(command, Refuse):
            outcome = command.answer
        principal = getattr(command, "principal", "")
        if principal and isinstance(command, OpenSession):
            # For a session whose connection is at another node, this much is known here, too.
            self._who.setdefault(session, Who(principal))
        who = self._who.get(session, UNKNOWN)
        if principal:
            who = who._replace(principal=principal)
        detail = command.by if isinstance(command, Break) else getattr(outcome, "detail", "")
        if isinstance(command, OpenSession):
            detail = command.meta
        return _shown(
            "command",
            who,
            # An authenticated command has the same name as an anonymous one.
            verb=_tag(command).removesuffix("_as"),
            session=session,
            names=getattr(command, "names", ()) or tuple(filter(None, (getattr(command, "name", ""),))),
            fence=getattr(outcome, "fence", 0) or getattr(command, "fence", 0),
            outcome=_outcome(outcome),
            detail=str(detail),
        )

    def _of_notice(self, notice: Notice) -> dict[str, Any]:
        who = self._who.get(notice.session, UNKNOWN)
        match notice:
            case WaitEnded(answer=answer):
                names, fence = getattr(answer, "names", ()), getattr(answer, "fence", 0)
                return _shown(
                    "notice",
                    who,
                    verb="acquire",
                    session=notice.session,
                    names=names,
                    fence=fence,
                    outcome=_outcome(answer),
                )
            case HoldEnded():
                return _shown(
                    "notice",
                    who,
                    verb="hold",
                    session=notice.session,
                    names=(notice.name,),
                    fence=notice.fence,
                    outcome=notice.ending.value,
                    detail=notice.by,
                )
            case SessionEnded():
                self._who.pop(notice.session, None)
                holds = notice.holds
                return _shown(
                    "notice",
                    who,
                    verb="session",
                    session=notice.session,
                    names=tuple(name for name, _ in holds),
                    fence=max((fence for _, fence in holds), default=0),
                    outcome=notice.ending.value,
                )


def _shown(kind: str, who: Who, **facts: Any) -> dict[str, Any]:
    """A record without what is empty in it."""
    known = {"kind": kind, **who._asdict(), **facts}
    return {key: value for key, value in known.items() if value}


def _tag(thing: object) -> str:
    tag = getattr(type(thing), "__struct_config__", None)
    return str(tag.tag) if tag is not None else type(thing).__name__.lower()


def _outcome(outcome: object) -> str:
    """The outcome; why, if it was refused."""
    if isinstance(outcome, Refused):
        return outcome.code.value
    reason = getattr(outcome, "reason", None)
    said = getattr(reason, "value", "ok")
    return _tag(outcome) if said == "ok" else str(said)


def _count(thing: Thing) -> int:
    return 1 if isinstance(thing, Told) else len(thing.entry.commands) + len(thing.applied.notices)


class Denials:
    """Denials: a bounded number a second is written one by one, and the others are counted.

    Refused clients must not fill the log: it would push out the records of admitted ones.
    """

    def __init__(self, log: AuditLog, per_round_max: int = 100, addresses_max: int = 1_024) -> None:
        self._log = log
        self._per_round_max = per_round_max
        self._addresses_max = addresses_max
        self._told = 0
        self._counted: dict[str, int] = {}

    def tell(self, told: Told, address: str) -> None:
        """A client at an address was denied something."""
        if self._told < self._per_round_max:
            self._told += 1
            self._log.tell(told)
            return
        where = address if address in self._counted or len(self._counted) < self._addresses_max else "elsewhere"
        self._counted[where] = self._counted.get(where, 0) + 1

    def end_round(self) -> None:
        """Write how many more there were, by address; to be called about once a second."""
        counted, self._counted, self._told = self._counted, {}, 0
        worst = sorted(counted.items(), key=lambda item: -item[1])
        for address, count in worst[: self._per_round_max]:
            self._log.tell(Told("denied", Who(peer=address), f"{count} more"))
        if rest := sum(count for _, count in worst[self._per_round_max :]):
            self._log.tell(Told("denied", Who(peer="elsewhere"), f"{rest} more"))
