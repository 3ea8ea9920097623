"""A client at the other end of a server's conversation: by a library that knows the whole of HTTP/2."""

from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event
from h2.settings import SettingCodes, Settings

from fencehold.doors.grpc.http2.conversation import Conversation
from fencehold.doors.grpc.http2.heads import Head
from fencehold.doors.grpc.http2.streams import ConversationBounds, Shelf, Stream
from fencehold.drivers.http2.frames import message

HEAD = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a.B/C"),
    (":authority", "x"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
)
BOUNDS = ConversationBounds(
    message_bytes_max=1_000,
    metadata_bytes_max=1_000,
    streams_max=4,
    kept_bytes_max=14_000,
    unsent_bytes_max=2_000,
    patience_max=50,
    patience_per_s=10,
)


class Served:
    """Who serves a call here: keeps what it is told."""

    def __init__(self, stream: Stream, head: Head, is_one_request: bool) -> None:
        self.stream = stream
        self.head = head
        self.is_one_request = is_one_request
        self.messages: list[bytes] = []
        self.is_whole = self.is_cancelled = False
        self.rooms = 0

    def on_message(self, data: bytes, _is_packed: bool) -> None:
        assert not self.is_cancelled, "told after the end"
        self.messages.append(data)

    def on_whole(self) -> None:
        self.is_whole = True

    def on_cancelled(self) -> None:
        assert not self.is_cancelled, "told twice"
        self.is_cancelled = True

    def on_room(self) -> None:
        self.rooms += 1


class Scene:
    """A server's conversation, those who serve its calls, and a client."""

    def __init__(self, *, is_one_request: bool = True, **settings: int) -> None:
        self.served: list[Served] = []
        self.is_one_request = is_one_request
        self.shelf = Shelf(BOUNDS.kept_bytes_max)
        self.now = 0.0
        self.server = Conversation(BOUNDS, self.shelf, self._begin, self.now)
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        values = {SettingCodes[name.upper()]: value for name, value in settings.items()}
        self.h2.local_settings = Settings(client=True, initial_values=values)
        self.h2.initiate_connection()
        self.events: list[Event] = []

    def _begin(self, stream: Stream, head: Head) -> Served:
        self.served.append(Served(stream, head, self.is_one_request))
        return self.served[-1]

    def of(self, kind: type) -> list[Any]:
        """What the server has done of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def exchange(self) -> None:
        """Let both sides hear each other until neither says anything."""
        while said := self.h2.data_to_send():
            self.server.feed(said, self.now)
            self.hear()

    def hear(self) -> None:
        """What the server says, and what the client answers of itself."""
        while heard := self.server.take():
            self.events += self.h2.receive_data(heard)
            if said := self.h2.data_to_send():
                self.server.feed(said, self.now)

    def call(self, data: bytes | None = b"asked", *, head: Any = HEAD, end: bool = True) -> Served:
        """Begin a call, and say that much in it."""
        number = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, head, end_stream=end and data is None)
        if data is not None:
            self.h2.send_data(number, message(data), end_stream=end)
        self.exchange()
        return self.served[-1]

    def answered(self, number: int) -> dict[str, str]:
        """The trailers of a call."""
        for event in self.events:
            headers = dict(getattr(event, "headers", None) or {})
            if getattr(event, "stream_id", 0) == number and "grpc-status" in headers:
                return headers
        return {}

    def raw(self, *parts: bytes) -> None:
        """Have the server hear bytes that no library would send."""
        for part in parts:
            self.server.feed(part, self.now)
