"""Snapshot: the state to bytes and back, with a format version and a hash.

The bytes depend on the state alone: equal states have equal bytes, whatever entries or snapshots they were made
from. They are written in slices, so that no step takes long however much is held (see `snapshot_slices`).

Layout: ``FENCEHOLD`` and the version as one byte; sections of MessagePack, each behind its length in four bytes:
the head, then slices of sessions with their holds; a length of zero; the BLAKE2b hash of all before it.

Version 2 has, before the hash, slices of the names that are kept for a least time, and a length of zero. It is
written only where there are any: all else has the bytes of version 1, readable by a node that knows no other.

Version 3 has those slices in any case, the policy at the end of the head, and with sessions their principals. It
is written only where there is a policy, or a session has a principal: a node that knows neither must not read past
them. Tokens are stored with their user, whose bytes are as before without any; a node that knows no tokens refuses
them.

Version 4 has all that version 3 has, and at the end of the head which shard of how many it is, and the slots that
have moved. It is written only where there are several.

Version 5 has all that version 4 has, and at the end of the head which cell it is, the map of cells, and the homes.
It is written only where there is such a map.

Version 6 has all that version 5 has, and the metadata of holds once for those that were granted together: after
the holds of a session, which are written without it, each with a count. It is written only where a hold has any.

Version 7 has all that version 6 has, and at the end of the head the map of all slots. It is written only where
slots have moved: a node that knows no such map must not read past it.
"""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from fencehold.core.limits import Limits
from fencehold.core.policy import NO_POLICY, Policy
from fencehold.core.queues import take_place
from fencehold.core.quotas import counted
from fencehold.core.rulebook import Rulebook
from fencehold.core.shards import settle_home
from fencehold.core.snapshot_slices import SavedSession, Saving, SessionImage, TokenImage
from fencehold.core.state import (
    Anchor,
    CellState,
    Crowd,
    Hold,
    HomeRecord,
    Kept,
    Session,
    SlotMove,
    Stage,
    State,
    Waiter,
)
from fencehold.errors import SnapshotUnreadable, UsageError
from fencehold.placement.cells import CellMap
from fencehold.placement.map import ShardMap

VERSION = 7
"""The newest that is known here."""
_MAGIC = b"FENCEHOLD"
_PLAIN, _KEEPING, _RULED, _SHARDED, _CELLED, _NOTED, _PLACED = (
    _MAGIC + bytes([version]) for version in (1, 2, 3, 4, 5, 6, VERSION)
)
_PREFIX_BYTES = len(_PLAIN)
_HASH_BYTES = 32
_META = attrgetter("meta")
_SLICE = 2_000
"""Holds and the like in one chunk: a millisecond or two of work."""


class _Head(Struct, array_like=True):
    position: int
    now_at: int
    fence: int
    ticket: int
    session_last: int
    limits: Limits
    delays: list[tuple[str, int]]
    leader: str = ""
    leader_address: str = ""


class _AnchoredHead(_Head, array_like=True):
    """What is written where there are anchors; a node that knows none reads past them."""

    anchors: list[Anchor] = []


class _RuledHead(_AnchoredHead, array_like=True):
    """What is written where there is a policy, or a session has a principal."""

    policy: Policy = NO_POLICY


class _ShardedHead(_RuledHead, array_like=True):
    """What is written where there are several shards."""

    home: tuple[int, int] | None = None
    slots: list[SlotMove] = []


class _SavedCells(Struct, array_like=True):
    cell: str
    map: CellMap
    records: list[HomeRecord]
    lapsed: list[str]


class _CelledHead(_ShardedHead, array_like=True):
    """What is written where there are several cells."""

    cells: _SavedCells | None = None


class _PlacedHead(_CelledHead, array_like=True):
    """What is written where slots have moved."""

    placed: ShardMap | None = None


_Notes = list[tuple[str, int]]
"""Metadata, and how many holds have it, one after the other."""
_ReadSession = tuple[TokenImage, int, list[Hold]]


class _NotedSession(Struct, array_like=True):
    """A session whose holds have metadata; without any it has the bytes of before."""

    image: TokenImage
    until_at: int
    holds: list[Hold]
    notes: _Notes = []


_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(_PlacedHead).decode
_decode_slice = msgspec.msgpack.Decoder(list[_ReadSession]).decode
_decode_noted_slice = msgspec.msgpack.Decoder(list[_NotedSession]).decode
_decode_kept = msgspec.msgpack.Decoder(list[Kept]).decode


class Snapshot(Iterator[bytes]):
    """A snapshot of a state as it was when this was made, drawn chunk by chunk while the state moves on."""

    def __init__(self, state: State) -> None:
        if state.saving is not None:
            raise UsageError("a snapshot is under way: draw it to its end, or close it, before the next")
        self._state = state
        self._saving = state.saving = Saving(state)
        self._chunks = _chunks(_head(state, self._saving), self._saving)

    def __next__(self) -> bytes:
        chunk = next(self._chunks, b"")
        if not chunk:
            self.close()
            raise StopIteration
        return chunk

    def close(self) -> None:
        """Stop keeping what it would still need. Idempotent; not needed after the end."""
        self._chunks = iter(())
        if self._state.saving is self._saving:
            self._state.saving = None


def state_hash(state: State) -> str:
    """The hash that a snapshot of the state ends with."""
    saving = Saving(state)
    *_, digest = _chunks(_head(state, saving), saving)
    return digest.hex()


def _chunks(head: bytes, saving: Saving) -> Iterator[bytes]:
    digest = blake2b(digest_size=_HASH_BYTES)
    for chunk in _sections(head, saving):
        digest.update(chunk)
        yield chunk
    yield digest.digest()


def _sections(head: bytes, saving: Saving) -> Iterator[bytes]:
    is_noted = saving.has_notes or saving.has_map
    yield _prefix(saving) + _framed(head)
    while sessions := _slice(saving):
        yield _framed(_encode([_noted(*saved) for saved in sessions] if is_noted else sessions))
    yield _framed(b"")
    if saving.kept or saving.has_principals or saving.has_home or saving.has_cells or saving.has_notes:
        for start in range(0, len(saving.kept), _SLICE):
            yield _framed(_encode(saving.kept[start : start + _SLICE]))
        yield _framed(b"")


def _noted(image: SessionImage, until_at: int, holds: list[Hold]) -> tuple[Any, ...]:
    """A session with the metadata of its holds apart: those of one grant stand together, and have the same."""
    notes = [(meta, len(tuple(same))) for meta, same in groupby(holds, key=_META)]
    if not any(meta for meta, _ in notes):
        return image, until_at, holds
    # Metadata is the last field of a hold.
    return image, until_at, [astuple(hold)[:-1] if hold.meta else hold for hold in holds], notes


def _prefix(saving: Saving) -> bytes:
    if saving.has_map:
        return _PLACED
    if saving.has_notes:
        return _NOTED
    if saving.has_cells:
        return _CELLED
    if saving.has_home:
        return _SHARDED
    return _RULED if saving.has_principals else _KEEPING if saving.kept else _PLAIN


def _framed(section: bytes) -> bytes:
    return len(section).to_bytes(4) + section


def _slice(saving: Saving) -> list[SavedSession]:
    sessions: list[SavedSession] = []
    weight = 0
    while weight < _SLICE and (saved := saving.next_session()) is not None:
        sessions.append(saved)
        image, _, holds = saved
        weight += 4 + len(holds) + len(image.waiters) + len(image.answers) + len(image.final_answers)
    return sessions


def _head(state: State, saving: Saving) -> bytes:
    delays = sorted(state.delays.items())
    fields = (
        state.position,
        state.now_at,
        state.fence,
        state.ticket,
        state.session_last,
        state.limits,
        delays,
        state.leader,
        state.leader_address,
    )
    home = None if state.home is None else (state.home.shard, state.home.shards)
    slots = [state.slots[slot] for slot in sorted(state.slots)]
    if state.cells is not None or saving.has_notes or saving.has_map:
        cells = None if state.cells is None else _saved_cells(state.cells)
        celled = (*fields, state.anchors, state.policy, home, slots, cells)
        return _encode(_CelledHead(*celled) if state.placed is None else _PlacedHead(*celled, state.placed))
    if home is not None:
        return _encode(_ShardedHead(*fields, state.anchors, state.policy, home, slots))
    if saving.has_principals:
        return _encode(_RuledHead(*fields, state.anchors, state.policy))
    return _encode(_AnchoredHead(*fields, state.anchors) if state.anchors else _Head(*fields))


def _saved_cells(cells: CellState) -> _SavedCells:
    records = [cells.records[prefix] for prefix in sorted(cells.records)]
    return _SavedCells(cells.cell, cells.map, records, sorted(cells.lapsed))


def read(data: bytes) -> State:
    """The state that a snapshot was taken of."""
    _verify(data)
    parts = _split(data)
    try:
        first, *slices = next(parts)
        head = _decode_head(first)
        if data.startswith((_NOTED, _PLACED)):
            saved = [[_read_noted(each) for each in _decode_noted_slice(section)] for section in slices]
        else:
            saved = [_decode_slice(section) for section in slices]
        kept = [_decode_kept(section) for section in next(parts)] if not data.startswith(_PLAIN) else []
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotUnreadable(f"the snapshot's hash is right, yet its content is not: {error}") from error
    return _rebuild(head, saved, kept)


def _read_noted(saved: _NotedSession) -> _ReadSession:
    holds, notes = saved.holds, saved.notes
    if sum(count for _, count in notes) > len(holds):
        raise ValueError("there is more metadata than there are holds")
    metas = [meta for meta, count in notes for _ in range(count)]
    told = [replace(hold, meta=meta) if meta else hold for hold, meta in zip(holds, metas, strict=False)]
    return saved.image, saved.until_at, told + holds[len(metas) :]


def _verify(data: bytes) -> None:
    if not data.startswith(_MAGIC):
        raise SnapshotUnreadable("these bytes are not a Fencehold snapshot")
    if not data.startswith((_PLAIN, _KEEPING, _RULED, _SHARDED, _CELLED, _NOTED, _PLACED)):
        version = data[len(_MAGIC) : _PREFIX_BYTES].hex() or "none"
        raise SnapshotUnreadable(f"the snapshot has format version {version}, and 1 to {VERSION} are known here")
    body, digest = data[:-_HASH_BYTES], data[-_HASH_BYTES:]
    if blake2b(body, digest_size=_HASH_BYTES).digest() != digest:
        raise SnapshotUnreadable("the snapshot is damaged or cut short: its hash is not the one it ends with")


def _split(data: bytes) -> Iterator[list[memoryview]]:
    """The sections up to each length of zero."""
    view = memoryview(data)
    start = _PREFIX_BYTES
    while True:
        sections: list[memoryview] = []
        while size := int.from_bytes(view[start : start + 4]):
            sections.append(view[start + 4 : start + 4 + size])
            start += 4 + size
        start += 4
        yield sections


def _rebuild(head: _PlacedHead, saved: list[list[_ReadSession]], kept: list[list[Kept]]) -> State:
    state = State(head.limits)
    state.position, state.now_at = head.position, head.now_at
    state.fence, state.ticket, state.session_last = head.fence, head.ticket, head.session_last
    state.leader, state.leader_address = head.leader, head.leader_address
    state.anchors = head.anchors
    if head.home is not None:
        settle_home(state, *head.home)
        state.slots = {move.slot: move for move in head.slots}
        state.placed = head.placed
        state.draining = {move.slot: None for move in head.slots if move.stage is Stage.CLOSING}
        state.arriving = {move.slot: None for move in head.slots if move.stage is Stage.ARRIVING}
    if (saved_cells := head.cells) is not None:
        records = {record.prefix: record for record in saved_cells.records}
        state.cells = CellState(saved_cells.cell, saved_cells.map, records, saved_cells.lapsed)
    for name, until_at in head.delays:
        state.delays[name] = until_at
        state.delays_due.add(until_at, name)
    for names in kept:
        for each in names:
            state.keep(each)
    waiters: list[Waiter] = []
    for sessions in saved:
        for image, until_at, holds in sessions:
            _rebuild_session(state, image, until_at, holds)
            waiters += image.waiters
    for crowd in state.crowds.values():
        _put_in_order(crowd)
    for waiter in sorted(waiters, key=lambda waiter: waiter.ticket):
        take_place(state, state.sessions[waiter.ask.session], waiter)
    state.policy = head.policy
    if head.policy.revision:
        state.rulebook = Rulebook(head.policy)
        state.usage = counted(state, state.rulebook)
    return state


def _put_in_order(crowd: Crowd) -> None:
    """By fence: a snapshot has the holds session by session."""
    holds = sorted(crowd.holds.items())
    crowd.holds.clear()
    crowd.holds.update(holds)


def _rebuild_session(state: State, image: TokenImage, until_at: int, holds: list[Hold]) -> None:
    session = Session(
        image.id,
        image.ttl_ms,
        image.grace_ms,
        image.secret,
        image.meta,
        image.opened_at,
        image.opened_fence,
        image.latest,
        image.answered,
        principal=image.principal,
        token=image.token,
    )
    session.answers.update(image.answers)
    session.final_answers.update(image.final_answers)
    session.lapsed.update(dict.fromkeys(image.lapsed))
    state.let_live(session, until_at)
    if session.principal:
        state.owned += 1
    for hold in holds:
        state.put_in(session, hold)
