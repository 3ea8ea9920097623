"""The other side of a conversation, by a library that knows the whole of HTTP/2 and allows nothing else."""

from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event
from h2.settings import SettingCodes, Settings

from fencehold.drivers.etcd.http2.conversation import Conversation
from fencehold.drivers.etcd.http2.status import Status
from fencehold.drivers.http2.frames import message, request_block

BLOCK = request_block("http", "localhost:2379", "/etcdserverpb.KV/Put", 500, (("hasleader", "true"),))
BEGIN = [(":status", "200"), ("content-type", "application/grpc")]
OK = [("grpc-status", "0"), ("grpc-message", "")]


class Peer:
    """A server, fed with what the client says."""

    def __init__(self, **settings: int) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        values = {SettingCodes[name.upper()]: value for name, value in settings.items()}
        self.h2.local_settings = Settings(client=False, initial_values=values)
        self.h2.initiate_connection()
        self.events: list[Event] = []

    def of(self, kind: type) -> list[Any]:
        """What the client has done of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def exchange(self, client: Conversation) -> None:
        """Let both sides hear each other until neither says anything."""
        while said := client.take():
            self.events += self.h2.receive_data(said)
            self.tell(client)

    def tell(self, client: Conversation) -> None:
        client.feed(self.h2.data_to_send())

    def answer(self, client: Conversation, stream: int, *answers: bytes, end: Any = OK) -> None:
        """Begin, say all of it, and end."""
        self.h2.send_headers(stream, BEGIN)
        for each in answers:
            self.h2.send_data(stream, message(each))
        self.h2.send_headers(stream, end, end_stream=True)
        self.tell(client)


class Asker:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.status: Status | None = None

    def on_message(self, data: bytes) -> None:
        assert self.status is None, "told after the end"
        self.messages.append(data)

    def on_end(self, status: Status) -> None:
        assert self.status is None, "ended twice"
        self.status = status


def greeted(**settings: int) -> tuple[Conversation, Peer]:
    """Both sides, after their first words."""
    client, peer = Conversation(), Peer(**settings)
    peer.tell(client)
    peer.exchange(client)
    assert client.is_greeted
    return client, peer
