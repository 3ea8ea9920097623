"""The protocol of one connection, sans I/O: streams, windows and endings; bytes in, bytes out.

1.  *A stream ends once*, with a status; the caller is notified at once, from within `feed`.
2.  *Was it sent?* A stream whose beginning was never taken to be written, that the peer refused, or that it says
    it has not processed, certainly did nothing. The outcome of every other one that breaks is unknown.
3.  *No more is sent than the peer has room for*: what does not fit waits in its stream until it has.
4.  *No more is kept than there is room for here*: a stream's window grows again when what came is read, and a peer
    that sends more than fits is disconnected. The window of all streams together grows whenever half of it is
    used: one that is not read must not stop the others.
5.  *What RFC 9113 forbids ends the stream, or the connection*, as it says, and the peer is told why. What comes
    late, for a stream that is over, is dropped.
"""

from collections import deque
from functools import lru_cache
from typing import Protocol

from fencehold.drivers.etcd.http2.status import Status, status_in
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import Broken, Cause, Frame, GoAway
from fencehold.drivers.http2.header_pieces import HeaderPieces

MESSAGE_BYTES_MAX = 16 << 20
"""The largest message taken."""
_STREAM_WINDOW_BYTES = 3 * MESSAGE_BYTES_MAX
"""Half of it may be read and not reported yet, and a message of the largest size must fit all the same."""
_WINDOW_BYTES = 4 * MESSAGE_BYTES_MAX
_BLOCK_BYTES_MAX = 64 << 10
_NUMBER_MAX = (1 << 31) - 1
_TOO_MANY_PINGS = b"too_many_pings"
"""How servers of gRPC say that they get pings too often."""
_MUCH_BYTES = 16 << 10
_SIGNS_MAX = 4
"""How many answers to pings may wait: a peer that sends more at a time gets them at once."""
_WORDS_MAX = 200


_OK = Status(Code.OK)


@lru_cache(128)
def _is_answer(block: bytes) -> bool:
    """Whether headers begin an answer of gRPC."""
    headers = _headers_or_none(block)
    return headers.get(":status") == "200" and headers.get("content-type", "").startswith("application/grpc")


@lru_cache(128)
def _is_ok(block: bytes) -> bool:
    """Whether trailers say that all is well, and no more."""
    headers = _headers_or_none(block)
    return "grpc-status" in headers and ":status" not in headers and status_in(headers) == _OK


def _headers_or_none(block: bytes) -> dict[str, str]:
    """The headers in a block; none if it cannot be read, which is found out again frame by frame."""
    try:
        return frames.headers_in(block)
    except Broken:
        return {}


class Receiver(Protocol):
    """The caller of a stream."""

    def on_message(self, data: bytes) -> None: ...
    def on_end(self, status: Status) -> None: ...


class Stream:
    """One call. Its owner passes it back to the conversation, and touches nothing in it."""

    __slots__ = (
        "block",
        "credit",
        "heard",
        "is_answered",
        "is_whole",
        "number",
        "read",
        "receiver",
        "room",
        "to_send",
    )

    def __init__(self, block: bytes, receiver: Receiver) -> None:
        self.block = block
        self.receiver = receiver
        self.number = 0
        """None before it began."""
        self.credit = 0
        """How much the peer has room for."""
        self.to_send = bytearray()
        self.is_whole = False
        """Whether nothing will be added to what is to be sent."""
        self.is_answered = False
        """Whether the headers of an answer came."""
        self.heard = bytearray()
        """What came of messages that are not whole yet."""
        self.room = _STREAM_WINDOW_BYTES
        """How much the peer may still send."""
        self.read = 0
        """How much was read since the window last grew."""


class Conversation:
    """One connection, seen from the client."""

    def __init__(self) -> None:
        self.is_greeted = False
        """Whether the peer has said that it speaks HTTP/2."""
        self.is_ending = False
        """Whether it takes no new streams; those that are there go on."""
        self.farewell = ""
        """Why the peer wants no more, if it said so."""
        self.is_too_many_pings = False
        """Whether that is why."""
        self._splitter = frames.Splitter()
        self._streams: dict[int, Stream] = {}
        self._waiting: deque[Stream] = deque()
        """Begun here; the peer takes no more at a time."""
        self._next = 1
        self._next_untaken = 1
        """The first stream of which nothing was taken to be written."""
        self._credit = self._first_credit = frames.WINDOW_BYTES
        self._frame_bytes = frames.FRAME_BYTES
        self._streams_max = _NUMBER_MAX
        self._heard = 0
        """How much came since the window of the connection last grew."""
        self._pieces = HeaderPieces(_BLOCK_BYTES_MAX)
        self._signs: list[bytes] = []
        """Answers to pings."""
        self._unsigned = 0
        """How much was sent since the last of them was given."""
        self._out = [
            frames.PREFACE,
            frames.settings(
                {
                    frames.HEADER_TABLE_SIZE: 0,
                    frames.ENABLE_PUSH: 0,
                    frames.INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES,
                }
            ),
            frames.numbered(frames.WINDOW_UPDATE, 0, _WINDOW_BYTES - frames.WINDOW_BYTES),
        ]

    @property
    def is_idle(self) -> bool:
        return not self._streams and not self._waiting

    def take(self, *, signs_can_wait: bool = False) -> bytes:
        """What is to be written now. The caller writes it: from then on it counts as sent.

        With `signs_can_wait`, answers to pings are left for later, while they are few and little is sent: a server
        of gRPC asks for one with every request, and asks for no other until it has it. It measures by them how
        large a window pays, so those that are about much are given at once.
        """
        out, self._out = self._out, []
        self._next_untaken = self._next
        if self._signs and not (signs_can_wait and self._unsigned < _MUCH_BYTES and len(self._signs) < _SIGNS_MAX):
            out += self._signs
            self._signs, self._unsigned = [], 0
        return b"".join(out)

    @property
    def owes_signs(self) -> bool:
        """Whether a ping waits for its answer."""
        return bool(self._signs)

    def is_sent(self, stream: Stream) -> bool:
        """Whether the peer may have seen anything of it."""
        return 0 < stream.number < self._next_untaken

    def begin(self, block: bytes, receiver: Receiver) -> Stream:
        """A new stream; nothing more is sent in it before `send`."""
        stream = Stream(block, receiver)
        if self.is_ending:
            receiver.on_end(self._not_taken())
        elif len(self._streams) < self._streams_max and not self._waiting:
            self._number(stream)
        else:
            self._waiting.append(stream)
        return stream

    def send(self, stream: Stream, data: bytes, *, is_last: bool = False) -> None:
        """Send data in a stream, as soon as there is room for it."""
        stream.to_send += data
        stream.is_whole = is_last
        self._push(stream)

    def on_read(self, stream: Stream, size: int) -> None:
        """A message of that size was read: there is room for more."""
        stream.read += frames.MESSAGE_HEAD_BYTES + size
        if stream.read > _STREAM_WINDOW_BYTES // 2 and stream.number in self._streams:
            self._out.append(frames.numbered(frames.WINDOW_UPDATE, stream.number, stream.read))
            stream.room += stream.read
            stream.read = 0

    def cancel(self, stream: Stream) -> None:
        """No caller waits for it any more; its receiver is not notified."""
        if self._streams.pop(stream.number, None) is not None:
            self._out.append(frames.numbered(frames.RST_STREAM, stream.number, Cause.CANCEL))
            self._begin_waiting()
        elif stream in self._waiting:
            self._waiting.remove(stream)

    def retire(self) -> None:
        """Begin no more streams; those that are there go on."""
        self.is_ending = True
        self._refuse_waiting()

    def ping(self) -> None:
        """Send a keep-alive ping."""
        self._out.append(frames.frame(frames.PING, payload=bytes(8)))

    def end(self, code: Code, why: str) -> None:
        """The connection is gone: all callers are notified."""
        self.retire()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.receiver.on_end(Status(code, why, is_sent=self.is_sent(stream)))

    def feed(self, data: bytes) -> None:
        """What came.

        Raises:
            Broken: it makes no sense; write what is to be written, and end it.
        """
        try:
            if self._splitter.is_between and self._take_answer(data):
                return
            for arrived in self._splitter.feed(data):
                self._check(arrived)
                self._on_frame(arrived)
        except Broken as error:
            self._out.append(frames.goaway(error.cause))
            raise

    def _take_answer(self, data: bytes) -> bool:
        """Take what came as the whole answer of one call, if it is that and nothing about it is unusual.

        It means what its frames would one by one; nearly everything that a member sends is of this form.
        """
        answer = frames.unary_answer_in(data)
        if answer is None or not self._pieces.is_between or not self.is_greeted:
            return False
        number, head, body, trailer = answer
        stream, size = self._streams.get(number), len(body)
        if (
            stream is None
            or stream.is_answered
            or not stream.is_whole
            or stream.to_send
            or size > stream.room
            or not frames.is_message(body)
            or not _is_answer(head)
            or not _is_ok(trailer)
        ):
            return False
        self._use_room(size, stream)
        del self._streams[number]
        receiver = stream.receiver
        receiver.on_message(body[frames.MESSAGE_HEAD_BYTES :])
        receiver.on_end(_OK)
        if self._waiting or self.is_ending:
            self._begin_waiting()
        return True

    def _check(self, arrived: Frame) -> None:
        self._pieces.check(arrived)
        if not self.is_greeted and arrived.kind != frames.SETTINGS:
            raise Broken("words before the settings")
        frames.check(arrived)

    def _stream(self, number: int) -> Stream | None:
        """The stream that a frame is for; None if it is over.

        Raises:
            Broken: it never began. Those with even numbers would be the peer's, which begins none.
        """
        stream = self._streams.get(number)
        if stream is None and (number >= self._next or not number % 2):
            raise Broken(f"a frame in stream {number}, which never began")
        return stream

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
                self._signs.append(frames.frame(frames.PING, frames.ACK, payload=arrived.payload))
        elif kind == frames.RST_STREAM:
            self._on_reset(arrived.stream, frames.cause_in(arrived.payload))
        elif kind == frames.GOAWAY:
            self._on_goaway(frames.goaway_in(arrived.payload))

    # What is sent.

    def _number(self, stream: Stream) -> None:
        stream.number, self._next = self._next, self._next + 2
        stream.credit = self._first_credit
        self.is_ending = self.is_ending or self._next > _NUMBER_MAX
        self._streams[stream.number] = stream
        block, kind = stream.block, frames.HEADERS
        while len(block) > self._frame_bytes:
            self._out.append(frames.frame(kind, 0, stream.number, block[: self._frame_bytes]))
            block, kind = block[self._frame_bytes :], frames.CONTINUATION
        self._out.append(frames.frame(kind, frames.END_HEADERS, stream.number, block))

    def _push(self, stream: Stream) -> None:
        """Send what there is room for."""
        if stream.number not in self._streams:
            return
        while stream.to_send:
            size = min(len(stream.to_send), stream.credit, self._credit, self._frame_bytes)
            if size <= 0:
                return
            part = bytes(stream.to_send[:size])
            del stream.to_send[:size]
            stream.credit -= size
            self._credit -= size
            self._unsigned += size
            is_end = stream.is_whole and not stream.to_send
            self._out.append(frames.frame(frames.DATA, frames.END_STREAM if is_end else 0, stream.number, part))

    def _on_window(self, number: int, more: int) -> None:
        if number:
            if (stream := self._stream(number)) is not None:
                self._on_stream_window(stream, more)
            return
        if not more:
            raise Broken("no more room")
        self._credit += more
        frames.check_credit(self._credit)
        self._push_all()

    def _on_stream_window(self, stream: Stream, more: int) -> None:
        stream.credit += more
        if not more:
            self._fail_stream(stream, "no more room", Cause.PROTOCOL_ERROR)
        elif stream.credit > frames.WINDOW_BYTES_MAX:
            self._fail_stream(stream, "more room than there can be", Cause.FLOW_CONTROL_ERROR)
        else:
            self._push(stream)

    def _push_all(self) -> None:
        for stream in tuple(self._streams.values()):
            if stream.to_send:
                self._push(stream)

    def _on_settings(self, arrived: Frame) -> None:
        if arrived.flags & frames.ACK:
            if arrived.payload:
                raise Broken("settings in an acknowledgement", Cause.FRAME_SIZE_ERROR)
            return
        self.is_greeted = True
        told = frames.settings_in(arrived.payload)
        if told.get(frames.ENABLE_PUSH):
            raise Broken("a server that would be pushed to")
        self._frame_bytes = told.get(frames.MAX_FRAME_SIZE, self._frame_bytes)
        self._streams_max = told.get(frames.MAX_CONCURRENT_STREAMS, self._streams_max)
        first = told.get(frames.INITIAL_WINDOW_SIZE, self._first_credit)
        for stream in self._streams.values():
            stream.credit += first - self._first_credit
            frames.check_credit(stream.credit)
        self._first_credit = first
        self._out.append(frames.frame(frames.SETTINGS, frames.ACK))
        self._push_all()
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        while self._waiting and len(self._streams) < self._streams_max and not self.is_ending:
            stream = self._waiting.popleft()
            self._number(stream)
            self._push(stream)
        if self.is_ending:
            self._refuse_waiting()

    # What is received.

    def _on_data(self, arrived: Frame) -> None:
        size, stream = len(arrived.payload), self._stream(arrived.stream)
        self._use_room(size, stream)
        data = frames.plain(arrived)
        if stream is None:
            return
        if not stream.is_answered:
            self._fail_stream(stream, "an answer without headers", Cause.PROTOCOL_ERROR)
            return
        stream.heard += data
        stream.read += size - len(data)
        self._tell_messages(stream)
        if arrived.flags & frames.END_STREAM:
            self._end_stream(stream, Status(Code.INTERNAL, "it ended without a status"), is_over_there=True)

    def _use_room(self, size: int, stream: Stream | None) -> None:
        """What came takes up room: all of it, also the padding and what is for no stream."""
        self._heard += size
        if self._heard > _WINDOW_BYTES // 2:
            self._out.append(frames.numbered(frames.WINDOW_UPDATE, 0, self._heard))
            self._heard = 0
        if stream is not None:
            stream.room -= size
            if stream.room < 0:
                raise Broken("more than there was room for", Cause.FLOW_CONTROL_ERROR)

    def _tell_messages(self, stream: Stream) -> None:
        heard = stream.heard
        while len(heard) >= frames.MESSAGE_HEAD_BYTES:
            size = frames.message_size(heard)
            if size > MESSAGE_BYTES_MAX:
                text = f"Received message larger than max ({size} vs. {MESSAGE_BYTES_MAX})"
                self._end_stream(stream, Status(Code.RESOURCE_EXHAUSTED, text))
                return
            end = frames.MESSAGE_HEAD_BYTES + size
            if len(heard) < end:
                return
            data = bytes(heard[frames.MESSAGE_HEAD_BYTES : end])
            del heard[:end]
            stream.receiver.on_message(data)

    def _on_block(self, arrived: Frame, block: bytes) -> None:
        headers = frames.headers_in(block)
        stream = self._stream(arrived.stream)
        if stream is not None:
            self._on_headers(stream, headers, is_end=bool(arrived.flags & frames.END_STREAM))

    def _on_headers(self, stream: Stream, headers: dict[str, str], *, is_end: bool) -> None:
        http = headers.get(":status", "")
        if (http == "") != stream.is_answered or (stream.is_answered and not is_end):
            # The first ones have a status of HTTP; the last ones have none, and are the last.
            self._fail_stream(stream, "headers out of order", Cause.PROTOCOL_ERROR)
        elif is_end:
            self._end_stream(stream, status_in(headers), is_over_there=True)
        elif http != "200":
            # More will follow, if it is one of those that only say that an answer is on its way.
            if not (len(http) == 3 and http.startswith("1")):
                self._end_stream(stream, status_in(headers))
        elif not headers.get("content-type", "").startswith("application/grpc"):
            self._end_stream(stream, Status(Code.UNKNOWN, "it answered with something that is not gRPC"))
        else:
            stream.is_answered = True

    def _on_reset(self, number: int, cause: int) -> None:
        stream = self._stream(number)
        if stream is None:
            return
        del self._streams[number]
        is_refused = cause == Cause.REFUSED_STREAM
        code = Code.CANCELLED if cause == Cause.CANCEL else Code.UNAVAILABLE
        why = f"the stream was reset: {frames.cause_name(cause)}"
        stream.receiver.on_end(Status(code, why, is_sent=not is_refused))
        self._begin_waiting()

    def _on_goaway(self, said: GoAway) -> None:
        self.is_too_many_pings = said.cause == Cause.ENHANCE_YOUR_CALM and said.words == _TOO_MANY_PINGS
        words = said.words[:_WORDS_MAX].decode("ascii", "backslashreplace")
        self.farewell = ": ".join(filter(None, [frames.cause_name(said.cause) if said.cause else "", words]))
        self.retire()
        for stream in [each for each in self._streams.values() if each.number > said.last]:
            del self._streams[stream.number]
            stream.receiver.on_end(self._not_taken())

    def _not_taken(self) -> Status:
        why = "it takes no more calls"
        return Status(Code.UNAVAILABLE, f"{why}: {self.farewell}" if self.farewell else why, is_sent=False)

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for stream in waiting:
            stream.receiver.on_end(self._not_taken())

    def _fail_stream(self, stream: Stream, why: str, cause: Cause) -> None:
        """End it for what the peer did in it."""
        self._end_stream(stream, Status(Code.INTERNAL, f"it does not speak HTTP/2: {why}"), cause=cause)

    def _end_stream(
        self, stream: Stream, status: Status, *, is_over_there: bool = False, cause: Cause = Cause.CANCEL
    ) -> None:
        """End it on both sides, whatever was still to be sent."""
        if self._streams.pop(stream.number, None) is None:
            return
        is_over_here = stream.is_whole and not stream.to_send
        if not (is_over_here and is_over_there):
            self._out.append(frames.numbered(frames.RST_STREAM, stream.number, cause))
        stream.receiver.on_end(status)
        self._begin_waiting()
