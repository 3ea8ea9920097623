"""The port, kept by etcd.

1.  *An append is one transaction*: if the epoch is still ours, nothing is at the position and something is at
    the one before it, put the entry; else return what is there. So etcd decides, at once, and no read ever does.
2.  *A request that comes late changes nothing.* Its position is taken, or its epoch sealed; or its predecessor
    was trimmed, since entries go from the front on and the one at the snapshot's position stays.
3.  *After a lost reply the transaction is sent again* (it is idempotent): it puts the entry or finds it. Only if
    no member replies in time is the outcome unknown, and then a new epoch settles it.
4.  *Taking an epoch counts up from the newest one*, in one transaction, so no two takers have the same.
5.  *Opening sees what is there at one moment*, or makes an empty journal. If the snapshot that it saw is gone,
    since another saved and trimmed meanwhile, it looks again. What cannot come about by any order of our own calls
    is damage, and reported as such.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple, Self

from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.client import EtcdAnswer, EtcdBounds, EtcdClient
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.member import Connect, MemberStanding
from fencehold.drivers.etcd.survey import EtcdMemberStatus, survey
from fencehold.drivers.etcd.transactions import (
    Message,
    count_in,
    equals,
    first_of,
    get,
    is_absent,
    put,
    transaction,
    value_in,
)
from fencehold.engines.etcd import snapshots
from fencehold.engines.etcd.append_form import AppendForm
from fencehold.engines.etcd.layout import POSITION_MAX, JournalKeys, encode_beginning, encode_entry
from fencehold.engines.etcd.reader import EntryPages, JournalTail
from fencehold.engines.etcd.room import Gauge
from fencehold.engines.etcd.snapshots import EtcdTrimmer, Pointer, load, pointer_of
from fencehold.errors import (
    Damaged,
    FenceholdError,
    NotAdmitted,
    OutcomeUnknown,
    OutOfPlace,
    Sealed,
    Unavailable,
    UsageError,
)
from fencehold.journal.health import EngineMember, Health
from fencehold.journal.port import Declared, Opened, Record
from fencehold.journal.room import Room
from fencehold.types import BEGINNING, Epoch, Position

_LOOKS_MAX = 16
"""How often a snapshot may be replaced while it is being loaded."""
_LEAD_TURNS_MAX = 64
"""How often other nodes may take an epoch first before a taker gives up."""


class Sight(NamedTuple):
    """What was there at one moment."""

    epoch: Epoch
    pointer: Pointer | None
    end: Position


async def open_journal(cluster: EtcdClient, keys: JournalKeys) -> Opened:
    """As the port says."""
    gone: Pointer | None = None
    for _ in range(_LOOKS_MAX):
        sight = await _look(cluster, keys)
        if sight is None:
            await _make(cluster, keys)
        elif sight.pointer is None:
            return Opened(None, sight.epoch, sight.end)
        elif sight.pointer == gone:
            raise Damaged(f"the snapshot at position {gone.position} is gone from etcd in part or whole")
        elif (snapshot := await load(cluster, keys, sight.pointer)) is not None:
            return Opened(snapshot, sight.epoch, sight.end)
        else:
            gone = sight.pointer
    raise Unavailable("snapshots are replaced faster than one can be read")


def epoch_in(value: bytes | None) -> Epoch:
    """The epoch that the epoch's key holds.

    Raises:
        Damaged: it holds none.
    """
    if value is None or not value.isdigit():
        raise Damaged("the epoch is gone from etcd, or was overwritten: restore etcd from a copy")
    return Epoch(int(value))


async def _look(cluster: EtcdClient, keys: JournalKeys) -> Sight | None:
    look = [get(keys.epoch), get(keys.snapshot), first_of(keys.entries_start, keys.entries_end)]
    epoch, snapshot, entries = (await cluster.read(transaction(then=look))).responses
    pointer, total = pointer_of(snapshot), count_in(entries)
    if value_in(epoch) is None and pointer is None and not total:
        return None
    begins = BEGINNING if pointer is None else Position(pointer.position)
    if not total or (first := keys.position(entries.response_range.kvs[0].key)) > begins:
        raise Damaged(f"entries after position {begins} are gone from etcd: restore it from a copy")
    return Sight(epoch_in(value_in(epoch)), pointer, Position(first + total - 1))


async def _make(cluster: EtcdClient, keys: JournalKeys) -> None:
    start = keys.entry(BEGINNING)
    so = [is_absent(keys.epoch), is_absent(keys.snapshot), is_absent(start)]
    try:
        # If another made it meanwhile, that is as good.
        await cluster.transact(transaction(so, [put(keys.epoch, b"0"), put(start, encode_beginning(BEGINNING))]))
    except OutcomeUnknown as error:
        raise Unavailable(str(error)) from error


class EtcdJournal:
    """A journal under a prefix in etcd, for any number of handles."""

    declared = Declared(engine="etcd", durable=True, shared=True, entry_bytes_max=1 << 20)

    def __init__(
        self, address: EtcdAddress, *, bounds: EtcdBounds | None = None, connect: Connect = Channel
    ) -> None:
        """With a `connect` of its own, a test makes calls go wrong."""
        self._address = address
        self._bounds = bounds or EtcdBounds()
        self._connect = connect
        self._keys = JournalKeys(address.prefix)
        self._running: _Running | None = None
        self._closely = False

    @classmethod
    def from_url(cls, url: str, shard: int = 0) -> Self:
        """The journal that a URL names; `address` says how. Those of shards but the first are below its prefix.

        Raises:
            UsageError: it names none; the message says what to write instead.
        """
        address = EtcdAddress.parse(url)
        return cls(address._replace(prefix=f"{address.prefix}shards/{shard:04d}/") if shard else address)

    def __repr__(self) -> str:
        return f"EtcdJournal({self._address})"

    async def open(self) -> Opened:
        if self._running is not None:
            raise UsageError(f"{self._address}: this journal is open already")
        cluster = EtcdClient(self._address, self._bounds, self._connect, denied=NotAdmitted)
        try:
            opened = await open_journal(cluster, self._keys)
        except BaseException:
            await cluster.close()
            raise
        self._running = _Running(cluster, self._keys, opened.epoch, self._address)
        return opened

    async def read(self, after: Position) -> AsyncIterator[Record]:
        pages = EntryPages(self._opened().cluster, self._keys, after)
        page = await pages.next()
        end = page.end
        while page.records:
            for record in page.records:
                if record.position <= end:
                    yield record
            if pages.position >= end:
                return
            page = await pages.next()

    async def tail(self, after: Position) -> AsyncIterator[Record]:
        running = self._opened()
        tail = JournalTail(running.cluster, self._keys, after, closely=self._closely)
        running.tails.add(tail)
        try:
            async for record in tail.records():
                yield record
        finally:
            tail.close()
            running.tails.discard(tail)

    def follow_closely(self, wanted: bool) -> None:
        self._closely = wanted
        for tail in self._running.tails if self._running is not None else ():
            tail.follow_closely(wanted)

    async def lead(self, known: Epoch | None = None) -> Epoch:
        return await self._opened().lead(known)

    async def append(self, entry: bytes, *, epoch: Epoch, position: Position) -> None:
        running = self._opened()
        if not 0 < len(entry) <= self.declared.entry_bytes_max:
            raise UsageError(f"an entry has 1 to {self.declared.entry_bytes_max} bytes, not {len(entry)}")
        await running.append(entry, epoch, position)

    def begin_append(
        self, entry: bytes, *, epoch: Epoch, position: Position, done: Callable[[BaseException | None], None]
    ) -> bool:
        running = self._running
        if running is None or not 0 < len(entry) <= self.declared.entry_bytes_max:
            return False
        return running.begin_append(entry, epoch, position, done)

    async def save(self, position: Position, chunks: Iterable[bytes]) -> None:
        await snapshots.save(self._opened().cluster, self._keys, position, chunks)

    async def seed(self, position: Position, chunks: Iterable[bytes]) -> None:
        await snapshots.seed(self._opened().cluster, self._keys, position, chunks)

    async def trim(self, *, urgent: bool = False) -> None:
        await self._opened().trimmer.trim(urgent=urgent)

    async def health(self, within_s: float) -> Health:
        try:
            seen = await survey(self._address, within_s, self._connect)
        except UsageError as error:
            return Health(note=str(error))
        voters = sum(not member.is_learner for member in seen)
        return Health(members=tuple(map(_member, seen)), quorum=voters // 2 + 1)

    async def room(self, within_s: float) -> Room:
        running = self._running
        return Room("etcd's database") if running is None else await running.gauge.read(within_s)

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.end()

    def _opened(self) -> "_Running":
        if self._running is None:
            raise Unavailable(f"{self._address}: this journal is not open: open it first")
        return self._running


def _member(seen: EtcdMemberStatus) -> EngineMember:
    role = {MemberStanding.LEADS: "leader", MemberStanding.FOLLOWS: "follower"}.get(seen.standing, "")
    # Its address is shown beside it.
    trouble = seen.trouble.removeprefix(f"{seen.endpoint}: ")
    note = "it knows no leader" if seen.standing is MemberStanding.ALONE else trouble
    is_up = seen.standing > MemberStanding.ALONE
    return EngineMember(seen.endpoint, is_up, "learner" if seen.is_learner else role, "" if is_up else note)


class _Running:
    """What an open journal has and a closed one has not: connections, and the tails."""

    def __init__(self, cluster: EtcdClient, keys: JournalKeys, epoch: Epoch, address: EtcdAddress) -> None:
        self.cluster = cluster
        self.trimmer = EtcdTrimmer(cluster, keys, compacts=address.compact)
        self.gauge = Gauge(cluster, address)
        self.tails: set[JournalTail] = set()
        self._keys = keys
        self._epoch = epoch
        """The newest one seen."""
        self._form: AppendForm | None = None

    async def append(self, entry: bytes, epoch: Epoch, position: Position) -> None:
        if not 0 < position <= POSITION_MAX:
            raise OutOfPlace(f"the next position is another than {position}")
        value = encode_entry(position, epoch, entry)
        answer = await self.cluster.transact(self._form_of(epoch).message(position, value))
        if not answer.message.succeeded:
            _settle(answer, value, epoch, position)

    def begin_append(
        self, entry: bytes, epoch: Epoch, position: Position, done: Callable[[BaseException | None], None]
    ) -> bool:
        if not 0 < position <= POSITION_MAX:
            return False
        value = encode_entry(position, epoch, entry)

        def told(answer: EtcdAnswer | BaseException) -> None:
            if isinstance(answer, BaseException):
                done(answer)
            elif answer.message.succeeded:
                done(None)
            else:
                done(_refusal(answer, value, epoch, position))

        return self.cluster.begin_transact(self._form_of(epoch).filled(position, value), told)

    async def lead(self, known: Epoch | None) -> Epoch:
        newest, is_doubted = self._epoch if known is None else known, False
        for _ in range(_LEAD_TURNS_MAX):
            try:
                answer = await self.cluster.transact(self._taking(newest))
            except Unavailable as error:
                if is_doubted:
                    raise OutcomeUnknown(f"an epoch may have been taken: {error}") from error
                raise
            if answer.message.succeeded:
                self._epoch = Epoch(newest + 1)
                return self._epoch
            # An earlier try may have taken the newest one. Another is taken then, and that one is lost.
            is_doubted = is_doubted or answer.doubted
            stands = epoch_in(value_in(answer.message.responses[0]))
            if known is not None and stands > newest + answer.doubted:
                raise Sealed(f"epoch {stands} was taken before", newest=stands)
            newest = stands
        raise (OutcomeUnknown if is_doubted else Unavailable)("others took each epoch first")

    async def end(self) -> None:
        for tail in tuple(self.tails):
            tail.close()
        await self.cluster.close()

    def _form_of(self, epoch: Epoch) -> AppendForm:
        if self._form is None or self._form.epoch != epoch:
            self._form = AppendForm(self._keys, epoch)
        return self._form

    def _taking(self, newest: Epoch) -> Message:
        key = self._keys.epoch
        return transaction([equals(key, b"%d" % newest)], [put(key, b"%d" % (newest + 1))], [get(key)])


def _refusal(answer: EtcdAnswer, value: bytes, epoch: Epoch, position: Position) -> FenceholdError | None:
    """What `_settle` raises, if anything."""
    try:
        _settle(answer, value, epoch, position)
    except FenceholdError as refused:
        return refused
    return None


def _settle(answer: EtcdAnswer, value: bytes, epoch: Epoch, position: Position) -> None:
    """Say why an entry was not put; or nothing, if an earlier try had put it."""
    newest, there, before = answer.message.responses
    found = value_in(there)
    if answer.doubted:
        if found == value:
            return
        if found is None and not count_in(before):
            raise OutcomeUnknown(f"position {position} is gone: it was never reached, or was trimmed meanwhile")
    stands = epoch_in(value_in(newest))
    if epoch < stands:
        raise Sealed(f"epoch {epoch} was sealed by epoch {stands}")
    if epoch > stands:
        raise UsageError(f"epoch {epoch} was never taken: the newest is {stands}")
    if found is not None:
        raise OutOfPlace(f"position {position} is written already")
    raise OutOfPlace(f"the next position is another than {position}: nothing is at {position - 1}")
