"""The law of one connection, seen from the server: streams, windows and endings, fed with bytes, asked for bytes.

1.  *A stream ends once.* Its handler is notified at once when it is reset or its connection is gone; what it sends
    afterwards is dropped.
2.  *No more is sent than the client has room for*, by its windows and by what it reads of what is written
    (`hold`): what does not fit waits in its stream. A handler that sends much waits until that has gone
    (`is_full`).
3.  *No more is kept than there is room for here.* A stream's window is twice the largest message, and grows when
    messages are read. What is kept of all connections together has a bound: streams, requests, and answers that no
    client reads. A connection keeps no more than is left for all others: beyond it, its call that wants more is
    refused. So one that hoards leaves half of the room, and a hundred leave a hundredth, which is plenty for a
    client that does not.
4.  *A client that only causes work is disconnected.* Streams that are reset, pings, settings and empty frames use
    up patience, which answered calls and time restore (CVE-2023-44487, CVE-2019-9512 to 9518). Header blocks come
    in few pieces (CVE-2024-27316).
5.  *What RFC 9113 forbids ends the stream, or the connection*, as it says, and the client is told why. What
    arrives late, for a closed stream, is dropped.
6.  *A call that was cancelled before its answer arrived is reported as cancelled*, even though the answer was
    sent: its handler undoes what the client never learned of.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import inf

from fencehold.doors.grpc.http2.heads import ANSWER, DONE, Head, Malformed, check_trailers, head_in, status_block
from fencehold.doors.grpc.http2.streams import STREAM_BYTES, ConversationBounds, Receiver, Shelf, Stream
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import Broken, Cause, Frame
from fencehold.drivers.http2.header_blocks import BlockReader, TooLarge
from fencehold.drivers.http2.header_pieces import HeaderPieces

_PIECES_MAX = 16
"""The most frames a header block may be split into."""
_WINDOW_BYTES = 1 << 24
"""What all streams of a connection may have in flight together."""
_ANSWERED_PATIENCE = 4
_STREAMS_PATIENCE = 32
"""Scanning this many streams costs as much patience as one empty frame."""
_NO_ROOM_WORDS = "this listener has no room for more messages: try again later"
_CALM_WORDS = b"too many frames that ask for nothing: streams that are reset, pings, settings"


class Conversation:
    """One connection, seen from the server."""

    def __init__(
        self,
        bounds: ConversationBounds,
        shelf: Shelf,
        begin: Callable[[Stream, Head], Receiver | None],
        now: float,
    ) -> None:
        self._bounds = bounds
        self._shelf = shelf
        self._begin = begin
        """Called for a new call; returns its receiver, or None if it was refused."""
        self._now = now
        self._splitter = frames.Splitter()
        self._preface = frames.PREFACE
        self._is_greeted = False
        self.is_draining = False
        self._streams: dict[int, Stream] = {}
        self._last = 0
        """The last stream that began."""
        self._blocked: dict[int, Stream] = {}
        """Streams that wait for room in the connection, and have room of their own. One without is not here: or a
        client could have a thousand of them scanned for each frame that gives them nothing."""
        self._reader = BlockReader(bounds.metadata_bytes_max)
        self._pieces = HeaderPieces(4 * bounds.metadata_bytes_max, _PIECES_MAX)
        self._credit = self._first_credit = frames.WINDOW_BYTES
        self._frame_bytes = frames.FRAME_BYTES
        # Half of it may have been read without the client having learned so: the largest message fits into the
        # rest.
        self._stream_window = 2 * (bounds.message_bytes_max + frames.MESSAGE_HEAD_BYTES)
        self._heard = 0
        """Bytes received since the window of the connection last grew."""
        self._patience = float(bounds.patience_max)
        self._is_held = False
        """The client does not read what was written."""
        self._out_bytes = 0
        """How much of the pending output is answers."""
        self._kept = 0
        """How much of what the shelf keeps belongs to this connection."""
        self._undelivered: OrderedDict[int, Callable[[], None]] = OrderedDict()
        """Of the calls answered last, what to call if one turns out to be cancelled."""
        self._out = [
            frames.settings(
                {
                    frames.HEADER_TABLE_SIZE: 0,
                    frames.MAX_CONCURRENT_STREAMS: bounds.streams_max,
                    frames.INITIAL_WINDOW_SIZE: self._stream_window,
                    frames.MAX_HEADER_LIST_SIZE: bounds.metadata_bytes_max,
                }
            ),
            frames.numbered(frames.WINDOW_UPDATE, 0, _WINDOW_BYTES - frames.WINDOW_BYTES),
        ]

    @property
    def is_idle(self) -> bool:
        return not self._streams

    @property
    def streams(self) -> int:
        """How many calls it has."""
        return len(self._streams)

    @property
    def is_greeted(self) -> bool:
        """Whether the client has shown that it speaks HTTP/2."""
        return self._is_greeted

    def take(self) -> bytes:
        """What is to be written now; there may be more when that is written."""
        out, self._out, self._out_bytes = self._out, [], 0
        if self._blocked:
            self._push_all()
        return out[0] if len(out) == 1 else b"".join(out)

    def hold(self) -> None:
        """The client does not read what was written: answers wait in their streams, and their handlers wait."""
        self._is_held = True

    def go_on(self) -> None:
        """The client reads again."""
        self._is_held = False
        self._push_all()

    # What the server says.

    def answer(self, stream: Stream, message: bytes, undelivered: Callable[[], None] | None = None) -> None:
        """The one answer of a call, which ends it."""
        number, data = stream.number, frames.message(message)
        size = len(data)
        if number not in self._streams:
            if undelivered is not None:
                undelivered()
            return
        is_room = size <= min(stream.credit, self._credit, self._frame_bytes) and self._has_way
        if not is_room or not stream.is_whole or stream.is_begun:
            stream.undelivered = undelivered
            self.send(stream, message)
            self.finish(stream, DONE)
            return
        del self._streams[number]
        self._drop(stream)
        self._credit -= size
        self._out_bytes += size
        head, end = frames.END_HEADERS, frames.END_HEADERS | frames.END_STREAM
        self._out += (
            frames.frame(frames.HEADERS, head, number, ANSWER),
            frames.frame(frames.DATA, 0, number, data),
            frames.frame(frames.HEADERS, end, number, DONE),
        )
        if undelivered is not None:
            self._remember(number, undelivered)
        self._patience = min(self._patience + _ANSWERED_PATIENCE, self._bounds.patience_max)

    def send(self, stream: Stream, message: bytes) -> None:
        """One of several answers, as soon as there is room for it."""
        if stream.number not in self._streams:
            return
        self._begin_answer(stream)
        data = frames.message(message)
        stream.to_send += data
        self._put(len(data))
        self._patience = min(self._patience + 1, self._bounds.patience_max)
        self._push(stream)
        # What has gone needs no room here.
        if stream.to_send and not self._has_room:
            self._reset(stream, Cause.ENHANCE_YOUR_CALM)

    def is_full(self, stream: Stream) -> bool:
        """Whether so much waits to be sent that more has to wait for `on_room`."""
        return stream.number in self._streams and len(stream.to_send) > self._bounds.unsent_bytes_max

    def finish(self, stream: Stream, block: bytes) -> None:
        """End a call with a status, after what is pending."""
        if stream.number not in self._streams or stream.ending:
            return
        if not stream.is_begun:
            block = ANSWER + block
            stream.is_begun = True
        stream.ending = block
        self._push(stream)

    def refuse(self, stream: Stream, block: bytes) -> None:
        """End a call with a status, dropping what was pending before it."""
        self._take_off(len(stream.to_send))
        stream.to_send.clear()
        stream.ending = b""
        self.finish(stream, block)

    def answer_http(self, stream: Stream, block: bytes) -> None:
        """Answer what is no call of gRPC."""
        stream.is_begun = True
        self.finish(stream, block)

    def on_read(self, stream: Stream, size: int) -> None:
        """A message of that size was read: there is room for more."""
        stream.read += frames.MESSAGE_HEAD_BYTES + size
        if stream.number in self._streams:
            stream.kept -= size
            self._take_off(size)
        if stream.read > self._stream_window // 2 and stream.number in self._streams and not stream.is_whole:
            self._out.append(frames.numbered(frames.WINDOW_UPDATE, stream.number, stream.read))
            stream.room += stream.read
            stream.read = 0

    def ping(self) -> None:
        """Ping the client."""
        self._out.append(frames.frame(frames.PING, payload=bytes(8)))

    def drain(self) -> None:
        """Accept no more calls; those in flight continue."""
        if not self.is_draining:
            self.is_draining = True
            self._out.append(frames.goaway(Cause.NO_ERROR, self._last))

    def end(self) -> None:
        """The connection is gone: the handlers of its calls are notified."""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._end_early(stream)

    def late(self, since: float) -> None:
        """End calls whose request was begun before that time, and is incomplete."""
        for stream in [each for each in self._streams.values() if each.late_since < since]:
            self._turn_down(stream, Code.DEADLINE_EXCEEDED, "the request was not sent in time")

    # What the client says.

    def feed(self, data: bytes, now: float) -> None:
        """Bytes received.

        Raises:
            Broken: they are invalid, or too much; write what is pending, and close.
        """
        if now > self._now:
            more = self._patience + (now - self._now) * self._bounds.patience_per_s
            self._patience, self._now = min(more, self._bounds.patience_max), now
        try:
            if self._preface:
                data = self._greet(data)
            for arrived in self._splitter.feed(data):
                self._check(arrived)
                self._on_frame(arrived)
        except Broken as error:
            words = _CALM_WORDS if error.cause == Cause.ENHANCE_YOUR_CALM else str(error).encode()[:200]
            self._out.append(frames.goaway(error.cause, self._last, words))
            raise

    def _greet(self, data: bytes) -> bytes:
        size = min(len(data), len(self._preface))
        if data[:size] != self._preface[:size]:
            raise Broken("a client that does not speak HTTP/2")
        self._preface = self._preface[size:]
        return data[size:]

    def _check(self, arrived: Frame) -> None:
        self._pieces.check(arrived)
        if not self._is_greeted and arrived.kind != frames.SETTINGS:
            raise Broken("frames before the settings")
        frames.check(arrived)

    def _on_frame(self, arrived: Frame) -> None:
        kind = arrived.kind
        if kind == frames.DATA:
            self._on_data(arrived)
        elif kind == frames.HEADERS:
            if (block := self._pieces.begin(arrived)) is not None:
                self._on_block(arrived, block)
        elif kind == frames.CONTINUATION:
            if (whole := self._pieces.go_on(arrived)) is not None:
                self._on_block(*whole)
        elif kind == frames.WINDOW_UPDATE:
            self._on_window(arrived.stream, frames.increment_in(arrived.payload))
        elif kind == frames.SETTINGS:
            self._on_settings(arrived)
        elif kind == frames.PING:
            if not arrived.flags & frames.ACK:
                self._lose_patience()
                self._out.append(frames.frame(frames.PING, frames.ACK, payload=arrived.payload))
        elif kind == frames.RST_STREAM:
            self._on_reset(arrived.stream, frames.cause_in(arrived.payload))
        else:
            # GOAWAY, priorities, and unknown kinds.
            self._lose_patience()

    def _lose_patience(self, much: int = 1) -> None:
        self._patience -= much
        if self._patience < 0:
            raise Broken("too many frames that carry nothing", Cause.ENHANCE_YOUR_CALM)

    def _stream(self, number: int) -> Stream | None:
        """The stream that a frame is for; None if it is over.

        Raises:
            Broken: it never began.
        """
        stream = self._streams.get(number)
        if stream is None and (number > self._last or not number % 2):
            raise Broken(f"a frame in stream {number}, which never began")
        return stream

    def _on_data(self, arrived: Frame) -> None:
        size, stream = len(arrived.payload), self._stream(arrived.stream)
        is_end = bool(arrived.flags & frames.END_STREAM)
        self._heard += size
        if self._heard > _WINDOW_BYTES // 2:
            self._out.append(frames.numbered(frames.WINDOW_UPDATE, 0, self._heard))
            self._heard = 0
        if not size and not is_end:
            self._lose_patience()
        data = frames.plain(arrived)
        if stream is None:
            return
        if stream.is_whole:
            self._fail(stream, Cause.STREAM_CLOSED)
            return
        stream.room -= size
        if stream.room < 0:
            raise Broken("more than there was room for", Cause.FLOW_CONTROL_ERROR)
        stream.read += size - len(data)
        if data:
            self._on_bytes(stream, data)
        if is_end and arrived.stream in self._streams:
            self._on_whole(stream)

    def _on_bytes(self, stream: Stream, data: bytes) -> None:
        """Deliver the complete messages, and keep the rest."""
        receiver, heard = stream.receiver, stream.heard
        if receiver is None:
            # Refused, and on its way to its end.
            return
        if heard:
            self._take_off(len(heard))
            heard += data
            if len(heard) < stream.wanted:
                self._keep(stream)
                return
            data = bytes(heard)
            heard.clear()
        at, end = 0, len(data)
        stream.wanted = frames.MESSAGE_HEAD_BYTES
        while end - at >= frames.MESSAGE_HEAD_BYTES:
            flag, size = data[at], int.from_bytes(data[at + 1 : at + 5], "big")
            if size > self._bounds.message_bytes_max or flag > 1:
                words = f"a message has at most {self._bounds.message_bytes_max} bytes, not {size}"
                self._turn_down(stream, Code.RESOURCE_EXHAUSTED, words)
                return
            start = at + frames.MESSAGE_HEAD_BYTES
            if end - start < size:
                stream.wanted = frames.MESSAGE_HEAD_BYTES + size
                break
            at = start + size
            stream.kept += at - start
            self._put(at - start)
            if not self._has_room:
                self._turn_down(stream, Code.RESOURCE_EXHAUSTED, _NO_ROOM_WORDS)
                return
            receiver.on_message(data[start:at], bool(flag))
            if stream.receiver is None:
                return
        if at < end:
            heard += data[at:] if at else data
            self._keep(stream)
        elif not receiver.is_one_request:
            stream.late_since = inf

    def _keep(self, stream: Stream) -> None:
        """Wait for the rest of a message."""
        stream.late_since = min(stream.late_since, self._now)
        self._put(len(stream.heard))
        if not self._has_room:
            self._turn_down(stream, Code.RESOURCE_EXHAUSTED, _NO_ROOM_WORDS)

    def _put(self, size: int) -> None:
        """Count so much more as kept; the caller checks afterwards whether there is room."""
        self._kept += size
        self._shelf.kept += size

    def _take_off(self, size: int) -> None:
        self._kept -= size
        self._shelf.kept -= size

    @property
    def _has_room(self) -> bool:
        """Whether this connection keeps no more than is left for all others."""
        return self._kept <= self._shelf.left

    def _turn_down(self, stream: Stream, code: Code, words: str) -> None:
        """End a call for what its client sent, or did not."""
        self._cancel(stream)
        self.refuse(stream, status_block(code, words))

    def _on_whole(self, stream: Stream) -> None:
        stream.is_whole, stream.late_since = True, inf
        receiver = stream.receiver
        if receiver is None:
            return
        if stream.heard:
            self._turn_down(stream, Code.INTERNAL, "the last message is cut short")
        else:
            receiver.on_whole()

    def _on_block(self, arrived: Frame, block: bytes) -> None:
        stream = self._streams.get(arrived.stream)
        is_end = bool(arrived.flags & frames.END_STREAM)
        if stream is not None:
            self._on_trailers(stream, block, is_end)
        elif arrived.stream <= self._last or not arrived.stream % 2:
            self._on_odd_headers(arrived.stream, block)
        else:
            self._on_head(arrived.stream, block, is_end)

    def _on_odd_headers(self, number: int, block: bytes) -> None:
        """Trailers of a call that has ended; a server's stream number, or a reused one, is an error."""
        if not number % 2:
            raise Broken(f"a call in stream {number}")
        self._lose_patience()
        try:
            check_trailers(self._reader, block, self._bounds.metadata_bytes_max)
        except Malformed:
            raise Broken(f"a second call in stream {number}", Cause.STREAM_CLOSED) from None

    def _on_head(self, number: int, block: bytes, is_end: bool) -> None:
        self._last = number
        # Read in any case: what comes after it may depend on it.
        try:
            head: Head | None = head_in(self._reader, block, self._bounds.metadata_bytes_max)
        except TooLarge:
            head = None
        except Malformed:
            self._lose_patience()
            self._out.append(frames.numbered(frames.RST_STREAM, number, Cause.PROTOCOL_ERROR))
            return
        is_full = len(self._streams) >= self._bounds.streams_max or self._kept + STREAM_BYTES > self._shelf.left
        if self.is_draining or is_full:
            self._lose_patience()
            self._out.append(frames.numbered(frames.RST_STREAM, number, Cause.REFUSED_STREAM))
            return
        stream = Stream(number, self._first_credit, self._stream_window)
        self._streams[number] = stream
        self._put(stream.kept)
        if head is None:
            words = f"metadata has at most {self._bounds.metadata_bytes_max} bytes"
            self.refuse(stream, status_block(Code.RESOURCE_EXHAUSTED, words))
        else:
            stream.receiver = self._begin(stream, head)
            if stream.receiver is not None and stream.receiver.is_one_request:
                stream.late_since = self._now
        if is_end and number in self._streams:
            self._on_whole(stream)

    def _on_trailers(self, stream: Stream, block: bytes, is_end: bool) -> None:
        try:
            check_trailers(self._reader, block, self._bounds.metadata_bytes_max)
        except Malformed:
            self._fail(stream, Cause.PROTOCOL_ERROR)
            return
        if stream.is_whole:
            self._fail(stream, Cause.STREAM_CLOSED)
        elif not is_end:
            self._fail(stream, Cause.PROTOCOL_ERROR)
        else:
            self._on_whole(stream)

    def _on_reset(self, number: int, cause: int) -> None:
        self._lose_patience()
        stream = self._stream(number)
        if stream is not None:
            del self._streams[number]
            self._end_early(stream)
        elif cause == Cause.CANCEL and (undelivered := self._undelivered.pop(number, None)) is not None:
            # A client that has the whole answer has nothing to cancel.
            undelivered()

    def _on_window(self, number: int, more: int) -> None:
        if number:
            if (stream := self._stream(number)) is None:
                self._lose_patience()
                return
            stream.credit += more
            if not more:
                self._fail(stream, Cause.PROTOCOL_ERROR)
            elif stream.credit > frames.WINDOW_BYTES_MAX:
                self._fail(stream, Cause.FLOW_CONTROL_ERROR)
            elif stream.to_send:
                self._push(stream)
            else:
                self._lose_patience()
            return
        if not more:
            raise Broken("no more room")
        self._credit += more
        frames.check_credit(self._credit)
        if not self._blocked:
            self._lose_patience()
        self._push_all()

    def _on_settings(self, arrived: Frame) -> None:
        self._lose_patience()
        if arrived.flags & frames.ACK:
            if arrived.payload:
                raise Broken("settings in an acknowledgement", Cause.FRAME_SIZE_ERROR)
            self._reader.on_settled()
            return
        self._is_greeted = True
        told = frames.settings_in(arrived.payload)
        self._frame_bytes = min(told.get(frames.MAX_FRAME_SIZE, self._frame_bytes), 1 << 16)
        self._out.append(frames.frame(frames.SETTINGS, frames.ACK))
        first = told.get(frames.INITIAL_WINDOW_SIZE, self._first_credit)
        more, self._first_credit = first - self._first_credit, first
        if more:
            self._on_first_credit(more)

    def _on_first_credit(self, more: int) -> None:
        """Every stream has so much more room, or less. Scanning all of them is work, and costs patience."""
        self._lose_patience(len(self._streams) // _STREAMS_PATIENCE)
        for stream in tuple(self._streams.values()):
            stream.credit += more
            frames.check_credit(stream.credit)
            if stream.to_send:
                self._push(stream)

    # What is sent, as far as there is room.

    def _begin_answer(self, stream: Stream) -> None:
        if not stream.is_begun:
            stream.is_begun = True
            self._out.append(frames.frame(frames.HEADERS, frames.END_HEADERS, stream.number, ANSWER))

    @property
    def _has_way(self) -> bool:
        """Whether the client has room in the connection, and reads what is written."""
        return self._credit > 0 and not self._is_held and self._out_bytes < self._bounds.unsent_bytes_max

    def _push_all(self) -> None:
        # Each either sends all that it has, or uses up its own room and waits here no more.
        while self._blocked and self._has_way:
            self._push(next(iter(self._blocked.values())))

    def _push(self, stream: Stream) -> None:
        to_send, had = stream.to_send, len(stream.to_send)
        while to_send and stream.credit > 0 and self._has_way:
            size = min(len(to_send), stream.credit, self._credit, self._frame_bytes)
            part = bytes(to_send[:size])
            del to_send[:size]
            stream.credit -= size
            self._credit -= size
            self._out_bytes += size
            self._out.append(frames.frame(frames.DATA, 0, stream.number, part))
        self._take_off(had - len(to_send))
        stream.was_full = stream.was_full or len(to_send) > self._bounds.unsent_bytes_max
        if to_send and stream.credit > 0:
            self._blocked[stream.number] = stream
            return
        self._blocked.pop(stream.number, None)
        if to_send:
            return
        if stream.ending:
            self._end_stream(stream)
        elif stream.was_full:
            stream.was_full = False
            if stream.receiver is not None:
                stream.receiver.on_room()

    def _end_stream(self, stream: Stream) -> None:
        number, flags = stream.number, frames.END_HEADERS | frames.END_STREAM
        del self._streams[number]
        self._out.append(frames.frame(frames.HEADERS, flags, number, stream.ending))
        if not stream.is_whole:
            # Nothing reads what it would still send.
            self._out.append(frames.numbered(frames.RST_STREAM, number, Cause.NO_ERROR))
        if stream.undelivered is not None:
            self._remember(number, stream.undelivered)
        self._drop(stream)
        self._patience = min(self._patience + _ANSWERED_PATIENCE, self._bounds.patience_max)

    def _remember(self, number: int, undelivered: Callable[[], None]) -> None:
        self._undelivered[number] = undelivered
        if len(self._undelivered) > self._bounds.streams_max:
            self._undelivered.popitem(last=False)

    def _fail(self, stream: Stream, cause: Cause) -> None:
        """End it for what the client did in it."""
        self._lose_patience()
        self._reset(stream, cause)

    def _reset(self, stream: Stream, cause: Cause) -> None:
        if self._streams.pop(stream.number, None) is not None:
            self._out.append(frames.numbered(frames.RST_STREAM, stream.number, cause))
            self._end_early(stream)

    def _end_early(self, stream: Stream) -> None:
        """It is over before its answer was sent whole."""
        self._drop(stream)
        self._cancel(stream)
        if stream.undelivered is not None:
            stream.undelivered()

    def _drop(self, stream: Stream) -> None:
        """Keep nothing of it."""
        self._blocked.pop(stream.number, None)
        self._take_off(stream.kept + len(stream.heard) + len(stream.to_send))
        stream.kept = 0
        stream.heard.clear()
        stream.to_send.clear()

    def _cancel(self, stream: Stream) -> None:
        self._take_off(len(stream.heard))
        stream.heard.clear()
        receiver, stream.receiver = stream.receiver, None
        if receiver is not None:
            receiver.on_cancelled()
