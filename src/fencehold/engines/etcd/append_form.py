"""An append as etcd takes it: one transaction, of which only the position and the value change within an epoch.

It is on the path of every acquire, so neither the message nor its bytes are made anew each time. A message is
filled in on a copy, which takes a third of the time. Bytes are put together of parts, which takes a third of that:
keys of positions have one length, so all but the put is the same with other digits.
"""

from fencehold.drivers.etcd.messages import TxnRequest
from fencehold.drivers.etcd.transactions import (
    Message,
    copy_of,
    count,
    equals,
    get,
    is_absent,
    is_present,
    put,
    transaction,
)
from fencehold.engines.etcd.layout import JournalKeys
from fencehold.types import Epoch, Position

_FIRST = Position(1)
# A field that has a length, by its number: `success` and `request_put` are the second of theirs.
_KEY, _VALUE = b"\x0a", b"\x12"
_SUCCESS, _REQUEST_PUT = b"\x12", b"\x12"


class AppendForm:
    """Makes the appends of one epoch."""

    __slots__ = ("_keys", "_message", "_otherwise", "_so", "epoch")

    def __init__(self, keys: JournalKeys, epoch: Epoch) -> None:
        self.epoch = epoch
        self._keys = keys
        nothing = b""
        self._message = transaction(
            so=[equals(keys.epoch, b"%d" % epoch), is_absent(nothing), is_present(nothing)],
            then=[put(nothing, nothing)],
            otherwise=[get(keys.epoch), get(nothing), count(nothing)],
        )
        first = self.message(_FIRST, nothing)
        self._so = self._pattern(TxnRequest(compare=first.compare))
        self._otherwise = self._pattern(TxnRequest(failure=first.failure))

    def message(self, position: Position, value: bytes) -> Message:
        """The transaction."""
        request = copy_of(self._message)
        place, before = self._keys.entry(position), self._keys.entry(Position(position - 1))
        _, is_free, is_next = request.compare
        is_free.key, is_next.key = place, before
        entry = request.success[0].request_put
        entry.key, entry.value = place, value
        _, there, previous = request.failure
        there.request_range.key, previous.request_range.key = place, before
        return request

    def filled(self, position: Position, value: bytes) -> bytes:
        """The same, as it is sent."""
        place, before = self._keys.entry(position), self._keys.entry(Position(position - 1))
        keys = {b"place": place, b"before": before}
        pair = b"".join((_KEY, _varint(len(place)), place, _VALUE, _varint(len(value)), value))
        step = _REQUEST_PUT + _varint(len(pair)) + pair
        return b"".join((self._so % keys, _SUCCESS, _varint(len(step)), step, self._otherwise % keys))

    def _pattern(self, part: Message) -> bytes:
        """A part of the transaction at the first position, to be filled in with other keys."""
        data: bytes = part.SerializeToString().replace(b"%", b"%%")
        for name, position in ((b"place", _FIRST), (b"before", Position(_FIRST - 1))):
            data = data.replace(self._keys.entry(position).replace(b"%", b"%%"), b"%%(%b)b" % name)
        return data


def _varint(number: int) -> bytes:
    """A length, as protobuf writes it."""
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
