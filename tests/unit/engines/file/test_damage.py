"""Flipped bits, blocks in the wrong place, torn pages: opening gives everything, or refuses. Never less."""

import random
import struct
from itertools import product
from pathlib import Path
from zlib import crc32

import pytest

from fencehold.engines.file.directory import Directory
from fencehold.engines.file.recovery import recover
from fencehold.engines.file.segments import encode
from fencehold.errors import Damaged
from fencehold.journal.port import Opened, Record
from fencehold.types import Position
from tests.depth import deep
from tests.unit.engines.file.wreck import (
    Contents,
    UnsyncedDisk,
    append_all,
    contents,
    open_and_read,
    opened_log,
    restore,
    sample,
    save,
    segment_files,
)

PAGE = 4_096
FLIPS = deep(400, 2_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def is_whole_or_refused(path: Path, files: Contents, expected: tuple[Opened, list[Record]]) -> bool:
    """Open what is left: True if all is there, False if it was refused. Anything else fails the test."""
    restore(path, files)
    try:
        opened, records = open_and_read(path)
    except Damaged:
        return False
    assert (opened._replace(notes=()), records) == (expected[0], expected[1])
    return True


@pytest.mark.slow
def test_a_flipped_bit_is_harmless_or_refused(path: Path) -> None:
    """Of hundreds of bits flipped one at a time, anywhere in any file, none changes what is read."""
    files, expected = sample(path)
    rng = random.Random(20)
    places = [(name, at) for name, data in files.items() for at in range(len(data))]
    refused = 0
    for _ in range(FLIPS):
        name, at = rng.choice(places)
        data = bytearray(files[name])
        data[at] ^= 1 << rng.randrange(8)
        refused += not is_whole_or_refused(path, files | {name: bytes(data)}, expected)
    assert FLIPS / 4 < refused < FLIPS


@pytest.mark.parametrize("way", ["over another", "inserted", "appended"])
@pytest.mark.parametrize("size", [64, 512])
def test_a_duplicated_block_is_harmless_or_refused(path: Path, way: str, size: int) -> None:
    """A block of a segment that turns up again elsewhere never makes an entry appear twice or vanish."""
    files, expected = sample(path)
    rng = random.Random(size)
    for _ in range(200):
        source, target = (rng.choice(segment_files(files)) for _ in range(2))
        block = rng.randrange(len(files[source]) // size) * size
        block_data = files[source][block : block + size]
        at = rng.randrange(len(files[target]) // size) * size
        data = files[target]
        begin, end = {"over another": (at, at + size), "inserted": (at, at), "appended": (len(data),) * 2}[way]
        is_whole_or_refused(path, files | {target: data[:begin] + block_data + data[end:]}, expected)


def test_a_record_written_twice_is_refused(path: Path) -> None:
    """A whole record where another belongs is damage, not a tear: cutting it would hide what came there."""
    with opened_log(path) as (log, _):
        log.lead()
        append_all(log, [b"one"])
        before = len(contents(path)[f"{1:020d}.log"].rstrip(b"\0"))
        append_all(log, [b"two"])
    segment = path / f"{1:020d}.log"
    data = segment.read_bytes()
    segment.write_bytes(data + data[before:])
    with pytest.raises(Damaged, match="position 2 stands where 3 belongs") as caught:
        open_and_read(path)
    assert f"{segment}: offset {len(data)}" in str(caught.value)


@pytest.mark.guarantee("G3")
def test_torn_pages_of_the_last_append_are_cut_only_before_it_is_acknowledged(path: Path) -> None:
    """Whichever pages of the append under way reached the disk, it is there whole or not at all; once it was
    acknowledged, a missing page is refused."""
    with opened_log(path, allocate_bytes=64 << 10) as (log, _):
        log.lead()
        records = append_all(log, [b"before " * 500])
        before = contents(path)
        records += append_all(log, [bytes(range(1, 256)) * 80])
        after = contents(path)
    name = f"{1:020d}.log"
    pages = range(0, 7 * PAGE, PAGE)
    for kept in product([False, True], repeat=len(pages)):
        chosen = zip(pages, kept, strict=True)
        torn = b"".join((after if keep else before)[name][at : at + PAGE] for at, keep in chosen)
        restore(path, after | {name: torn, "mark": before["mark"]})
        opened, found = open_and_read(path)
        whole = torn == after[name][: len(torn)]
        assert found == (records if whole else records[:1])
        assert bool(opened.notes) == (not whole and torn != before[name][: len(torn)])
        restore(path, after | {name: torn})
        if not whole:
            with pytest.raises(Damaged):
                open_and_read(path)


def test_a_damaged_middle_is_refused_even_without_a_mark(path: Path) -> None:
    """Bytes that are no record, with a whole record after them or a segment, are never cut."""
    files, _ = sample(path)
    del files["mark"]
    for name in segment_files(files)[-3:]:
        data = bytearray(files[name])
        data[100] ^= 0xFF
        restore(path, files | {name: bytes(data)})
        with pytest.raises(Damaged, match="not a whole record"):
            open_and_read(path)


def test_a_missing_segment_is_refused(path: Path) -> None:
    """Any segment that holds something after the snapshot is missed; the others are needless."""
    files, expected = sample(path)
    names = segment_files(files)
    needed = [i for i, name in enumerate(names) if int(name[:20]) <= 46][-1]
    for i, name in enumerate(names):
        rest = {other: data for other, data in files.items() if other != name}
        assert is_whole_or_refused(path, rest, expected) == (i < needed)
        if i >= needed and name != names[-1]:
            restore(path, rest)
            with pytest.raises(Damaged, match=r"the next is|are missing: no segment holds them"):
                recover(Directory(str(path), UnsyncedDisk()))
    restore(path, {name: data for name, data in files.items() if name not in names})
    with pytest.raises(Damaged, match="acknowledged entries are missing"):
        open_and_read(path)


def test_a_segment_that_ends_torn_is_refused_if_another_follows(path: Path) -> None:
    """Only the last segment can have been written when the power went."""
    files, _ = sample(path)
    del files["mark"]
    name = segment_files(files)[-2]
    restore(path, files | {name: files[name].rstrip(b"\0")[:-1]})
    with pytest.raises(Damaged, match="not a whole record, yet"):
        recover(Directory(str(path), UnsyncedDisk()))


def test_a_record_inside_an_entry_is_not_taken_for_one(path: Path) -> None:
    """An entry that holds the bytes of a record from elsewhere is torn and cut like any other."""
    with opened_log(path) as (log, _):
        log.lead()
        records = append_all(log, [b"one"])
        marked = contents(path)["mark"]
        smuggled = encode(b"granted", log.epoch, Position(3), salt=0)
        append_all(log, [smuggled * 3 + b"the end"])
    segment = path / f"{1:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    (path / "mark").write_bytes(marked)
    opened, found = open_and_read(path)
    assert found == records
    assert "bytes of an entry that was never acknowledged" in opened.notes[0]


def test_an_unreadable_mark_is_noted_and_a_missing_one_is_not(path: Path) -> None:
    """Without a mark everything is still read; only damage that it alone would show goes unnoticed."""
    files, expected = sample(path)
    restore(path, files | {"mark": b"\xff" * 128})
    opened, records = open_and_read(path)
    assert records == expected[1]
    assert opened.notes == (f"{path}/mark: unreadable: entries cut off the end would go unnoticed",)
    del files["mark"]
    restore(path, files)
    assert open_and_read(path) == expected


@pytest.mark.parametrize("kind", ["epoch", ".snapshot", ".log"])
def test_an_unknown_format_version_is_named(path: Path, kind: str) -> None:
    """A file of a later format is refused with both versions in the message, its checksum unasked."""
    files, _ = sample(path)
    name = [name for name in files if name.endswith(kind)][-1]
    data = bytearray(files[name])
    struct.pack_into("<I", data, 8, 7)
    if kind == "epoch":
        struct.pack_into("<I", data, len(data) - 4, crc32(data[:-4]))
    restore(path, files | {name: bytes(data)})
    with pytest.raises(Damaged, match=f"{name}: format version 7, but only version 1 is known"):
        open_and_read(path)


@pytest.mark.parametrize("kind", ["epoch", ".snapshot", ".log"])
@pytest.mark.parametrize("at", [0, 12, -1])
def test_a_damaged_head_or_end_of_a_file_names_it(path: Path, kind: str, at: int) -> None:
    """A newest snapshot, epoch or segment that is not what was written is refused by name."""
    files, _ = sample(path)
    name = [name for name in files if name.endswith(kind)][-1]
    data = bytearray(files[name].rstrip(b"\0"))
    data[at] ^= 0x55
    for wrecked in (bytes(data), files[name][:9], b""):
        restore(path, files | {name: wrecked})
        with pytest.raises(Damaged, match=name):
            open_and_read(path)


def test_an_epoch_that_went_back_or_is_missing_is_refused(path: Path) -> None:
    """An epoch file older than the log, as a partial restore brings back, would unseal a leader."""
    with opened_log(path) as (log, _):
        log.lead()
        older = (path / "epoch").read_bytes()
        log.lead()
        append_all(log, [b"entry"])
    (path / "epoch").write_bytes(older)
    with pytest.raises(Damaged, match="names epoch 1"):
        open_and_read(path)
    (path / "epoch").unlink()
    with pytest.raises(Damaged, match="epoch: missing"):
        open_and_read(path)


def test_a_log_that_ends_before_its_snapshot_is_refused(path: Path) -> None:
    """A snapshot ahead of the log means entries were lost, also when no mark tells."""
    with opened_log(path) as (log, _):
        log.lead()
        append_all(log, [b"entry"])
    save(path, 5, b"from another life")
    with pytest.raises(Damaged, match="before the snapshot"):
        open_and_read(path)


def test_leftover_drafts_are_removed_and_noted(path: Path) -> None:
    """What was being written when the process ended is removed at the next opening, and nothing else is."""
    files, expected = sample(path)
    drafts = {f"{99:020d}.snapshot.tmp": b"half", "epoch.tmp": b"", f"{121:020d}.log.tmp": b"half"}
    restore(path, files | drafts)
    opened, records = open_and_read(path)
    assert records == expected[1]
    assert opened.notes == tuple(f"{path}/{name}: removed, left half-written" for name in sorted(drafts))
    assert set(contents(path)) == set(files)
