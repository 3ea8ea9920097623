"""The services of the interface: their RPCs, for a server, and stubs for a client, made of their description."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from fencehold.wire.messages import pool

PACKAGE = "fencehold.v1"
LOCK, SESSION, WATCH = f"{PACKAGE}.LockService", f"{PACKAGE}.SessionService", f"{PACKAGE}.WatchService"


class Rpc(NamedTuple):
    """One method of a service, as it is described."""

    name: str
    path: str
    read: Callable[[bytes], Any]
    """Parses a request from bytes."""
    is_client_streaming: bool
    is_server_streaming: bool


def rpcs_of(service: str, of: DescriptorPool = pool) -> Iterator[Rpc]:
    """The methods of a service that is described in a pool."""
    for method in _described(service, of).methods:
        read = GetMessageClass(method.input_type).FromString
        yield Rpc(method.name, f"/{service}/{method.name}", read, method.client_streaming, method.server_streaming)


class Stub:
    """A client of one service: its RPCs by their names, on a channel of `grpc` or of `grpc.aio`."""

    def __init__(self, channel: Any, service: str, of: DescriptorPool = pool) -> None:
        for method in _described(service, of).methods:
            call = getattr(channel, _shape(method))(
                f"/{service}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no RPC {name}")


def _described(service: str, of: DescriptorPool) -> ServiceDescriptor:
    return of.FindServiceByName(service)


def _shape(method: MethodDescriptor) -> str:
    return f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
