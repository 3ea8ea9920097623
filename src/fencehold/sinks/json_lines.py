"""Events as lines of JSON in a file, which is rotated when it is large.

1. A batch is written in one go and synced; when that failed, the file is cut back to where it was.
2. The last whole line says how far it got. What a crash left of a line is cut off when the file is opened. With
   several shards the last line of a batch has the places of all of them, in the attribute `fenceholdplaces`.
3. `events.jsonl` is renamed to `events.jsonl.1` when it has `max_bytes`, that to `.2`, up to `keep`.
4. One process writes: the file is locked while it is open.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fencehold.drivers.address import Scheme, whole
from fencehold.errors import OutcomeUnknown, Unavailable, UsageError
from fencehold.sinks.port import Cursor, Cursors, Declared, Delivery, Record, cursors_of, places_text, read_places
from fencehold.sinks.worker import Worker

SCHEME = Scheme(
    names=("jsonl",),
    form="jsonl:///var/log/fencehold/events.jsonl",
    options=(whole("max_bytes", 64 << 20), whole("keep", 10, most=1_000)),
    takes_tls=False,
    hosts_min=0,
    hosts_max=0,
)
_TAIL_BYTES = 4 << 20
"""More than a batch has."""
_PLACES = "fenceholdplaces"


class JsonLines:
    """A file, and its rotated ones."""

    declared = Declared("jsonl", Delivery.EXACTLY_ONCE, "the last line of the file")

    def __init__(self, path: Path, *, max_bytes: int = 64 << 20, keep: int = 10) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._fd = -1
        self._size_bytes = 0
        self._shards = 1
        self._cursors: Cursors = {}
        self._worker = Worker()

    @classmethod
    def of(cls, url: str) -> "JsonLines":
        """Raises UsageError: the URL names no file."""
        said = SCHEME.parse(url)
        if not said.path:
            raise said.refusal(f"it names a file: write {SCHEME.form}")
        return cls(Path(f"/{said.path}"), max_bytes=said.options["max_bytes"], keep=said.options["keep"])

    async def open(self, shards: int = 1) -> Cursors:
        self._shards = shards
        self._cursors = await self._worker.do(self._open)
        return dict(self._cursors)

    async def deliver(self, batch: Sequence[Record]) -> None:
        await self._worker.do(self._write, batch)

    async def close(self) -> None:
        await self._worker.end(self._drop)

    def _open(self) -> Cursors:
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            cursors = self._cut_torn()
        except BlockingIOError:
            self._drop()
            raise Unavailable(f"{self._path}: another process writes into it") from None
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            self._drop()
            raise UsageError(f"{self._path} cannot be written: {error.strerror}") from None
        except OSError as error:
            self._drop()
            raise Unavailable(f"{self._path}: {error.strerror}") from None
        return cursors or self._cursors_of(self._older(1))

    def _drop(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _cut_torn(self) -> Cursors:
        """Cut off what a crash left of a line, and read the last ones that are whole."""
        self._size_bytes = os.fstat(self._fd).st_size
        begin = max(0, self._size_bytes - _TAIL_BYTES)
        tail = os.pread(self._fd, self._size_bytes - begin, begin)
        whole_bytes = tail.rfind(b"\n") + 1
        if whole_bytes < len(tail):
            os.ftruncate(self._fd, begin + whole_bytes)
            self._size_bytes = begin + whole_bytes
        return _cursors_in(tail[:whole_bytes], self._path, self._shards, is_whole=not begin)

    def _cursors_of(self, path: Path) -> Cursors:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as source:
            size_bytes = source.seek(0, os.SEEK_END)
            source.seek(max(0, size_bytes - _TAIL_BYTES))
            return _cursors_in(source.read(), path, self._shards, is_whole=size_bytes <= _TAIL_BYTES)
        return {}

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _write(self, batch: Sequence[Record]) -> None:
        try:
            if self._size_bytes >= self._max_bytes:
                self._rotate()
            cursors = {**self._cursors, **cursors_of(batch)}
            data = b"".join(self._lines(batch, cursors))
            written = 0
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._size_bytes + written)
            os.fdatasync(self._fd)
            self._size_bytes += len(data)
            self._cursors = cursors
        except OSError as error:
            self._undo(error)

    def _lines(self, batch: Sequence[Record], cursors: Cursors) -> Iterator[bytes]:
        for record in batch[:-1]:
            yield record.body + b"\n"
        body = batch[-1].body
        if self._shards > 1:
            body = body.removesuffix(b"}") + f',"{_PLACES}":"{places_text(cursors)}"}}'.encode()
        yield body + b"\n"

    def _undo(self, error: OSError) -> None:
        try:
            os.ftruncate(self._fd, self._size_bytes)
        except OSError:
            raise OutcomeUnknown(f"{self._path}: {error.strerror}") from error
        raise Unavailable(f"{self._path}: {error.strerror}") from error

    def _rotate(self) -> None:
        for number in range(self._keep, 0, -1):
            source = self._path if number == 1 else self._older(number - 1)
            with contextlib.suppress(FileNotFoundError):
                source.replace(self._older(number))
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(self._fd)
        self._fd, self._size_bytes = fd, 0


def _cursors_in(lines: bytes, path: Path, shards: int, *, is_whole: bool) -> Cursors:
    """The cursors of lines, of each shard: back to the last one that has all of them. `is_whole`: the first line
    is."""
    found: Cursors = {}
    texts = lines.rstrip(b"\n").split(b"\n") if lines else []
    for text in reversed(texts if is_whole else texts[1:]):
        try:
            event = json.loads(text)
            found.setdefault(int(event["source"].rpartition("/")[2]), cursor_of(event))
            if _PLACES in event:
                return read_places(event[_PLACES]) | found
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{path} has lines of something else: name a file of its own") from None
        if shards == 1:
            break
    return found


def cursor_of(event: dict[str, str]) -> Cursor:
    """The place of a CloudEvent of ours, by its sequence."""
    position, _, index = event["sequence"].partition(".")
    return int(position), int(index)
