"""Header blocks: read as others write them, with a table and without, and never more than is taken."""

from contextlib import suppress

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from fencehold.drivers.http2.frames import Broken
from fencehold.drivers.http2.header_blocks import BlockReader, Fields, TooLarge, field, fields_in

HEADERS = ((b":method", b"POST"), (b":path", b"/a/B"), (b"te", b"trailers"), (b"x-own", b"y" * 300))
some_fields = st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=200)), max_size=6)


def block_of(headers: Fields, *, size: int | None = None, packed: bool = True) -> bytes:
    encoder = Encoder()
    if size is not None:
        encoder.header_table_size = size
    return bytes(encoder.encode([(name, value) for name, value in headers], huffman=packed))


@given(some_fields, st.booleans())
def test_what_others_write_without_a_table_is_read(headers: list[tuple[bytes, bytes]], packed: bool) -> None:
    """Packed or not, whatever the text."""
    told = tuple(headers)
    assert fields_in(block_of(told, size=0, packed=packed), 1 << 20) == told


@given(some_fields)
def test_what_is_written_is_read_by_others(headers: list[tuple[bytes, bytes]]) -> None:
    """And goes into no table."""
    decoder = Decoder()
    block = b"".join(field(name, value) for name, value in headers)
    assert [(name, value) for name, value, *_ in decoder.decode(block, raw=True)] == headers
    assert not decoder.header_table.dynamic_entries


def test_a_table_is_kept_until_the_other_side_has_given_it_up() -> None:
    """The second block of a client is short, by what is in its table; the third gives it up."""
    encoder, reader = Encoder(), BlockReader(4_096)
    for _ in range(2):
        assert reader.read(bytes(encoder.encode(list(HEADERS)))) == HEADERS
    is_tabled = [reader.needs_table]
    reader.on_settled()
    encoder.header_table_size = 0
    assert reader.read(bytes(encoder.encode(list(HEADERS)))) == HEADERS
    assert [*is_tabled, reader.needs_table] == [True, False]
    assert reader.read(bytes(encoder.encode(list(HEADERS)))) == HEADERS


def test_a_table_that_was_to_be_given_up_breaks() -> None:
    """Who goes on using it cannot be understood."""
    encoder, reader = Encoder(), BlockReader(4_096)
    reader.read(bytes(encoder.encode(list(HEADERS))))
    reader.on_settled()
    with pytest.raises(Broken):
        reader.read(bytes(encoder.encode(list(HEADERS))))


@pytest.mark.parametrize(
    "block",
    [
        b"\xbe",
        b"\x80",
        b"\x3f\xe1\x1f",
        b"\x88\x20",
        b"\x00\x05ab",
        b"\x7f" + b"\xff" * 9,
        b"\x00\x81\xff\x00",
        b"\x40",
    ],
    ids=["kept", "none", "a table", "late", "short", "endless", "packed wrongly", "nothing"],
)
def test_what_is_no_block_breaks(block: bytes) -> None:
    """A field of a table, a size of one, text cut short, a number without an end."""
    with pytest.raises(Broken):
        fields_in(block, 4_096)


def test_no_more_is_unpacked_than_is_taken() -> None:
    """A byte that stands for kilobytes counts for those; what comes next can be read all the same."""
    encoder, reader = Encoder(), BlockReader(4_096)
    large = ((b"x", b"y" * 3_000),)
    assert reader.read(bytes(encoder.encode(list(large)))) == large
    again = bytes(encoder.encode(list(large)))
    assert len(again) == 1
    with pytest.raises(TooLarge):
        reader.read(again * 2)
    assert reader.read(again) == large
    with pytest.raises(Broken):
        reader.read(again * 1_000)
    with pytest.raises(TooLarge):
        fields_in(b"\x88" * 1_000, 4_096)


@given(st.binary(max_size=200))
def test_noise_breaks_or_is_read(block: bytes) -> None:
    """No other error comes of it."""
    with suppress(Broken, TooLarge):
        fields_in(block, 4_096)
