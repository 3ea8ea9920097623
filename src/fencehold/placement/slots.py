"""Slots: where a name belongs, as Redis Cluster computes it, so that its clients route to us unchanged.

1. There are 16 384 slots, for ever. A name's slot is the CRC16 (XMODEM) of its bytes, modulo that.
2. If a name has a `{`, and a `}` after it with something between, only what is between the first `{` and the first
   `}` after it is hashed. So names with the same `{tag}` share a slot, and a shard, wherever that is.
"""

from binascii import crc_hqx
from collections.abc import Iterable

SLOTS = 16_384


def slot_of(name: str) -> int:
    """The slot of a name."""
    key = name.encode()
    opened = key.find(b"{")
    if opened >= 0:
        closed = key.find(b"}", opened + 1)
        if closed > opened + 1:
            key = key[opened + 1 : closed]
    return crc_hqx(key, 0) % SLOTS


def slots_of(names: Iterable[str]) -> list[int]:
    """The slots of several names, each once, in order."""
    return sorted({slot_of(name) for name in names})
