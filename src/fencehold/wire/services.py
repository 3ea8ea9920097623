"""The services of the interface: handlers for a server, stubs for a client, made of their description.

A handler is a method of the servicer, called like the RPC in lower case with underscores: `MultiLock` is
`multi_lock`, and `Break`, a word of Python, `break_`. It is given None in the place of what is no message.
"""

import keyword
import re
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from fencehold.wire.messages import pool

PACKAGE = "fencehold.v1"
LOCK, SESSION, WATCH = f"{PACKAGE}.LockService", f"{PACKAGE}.SessionService", f"{PACKAGE}.WatchService"


def handler_of(service: str, servicer: object, of: DescriptorPool = pool) -> grpc.GenericRpcHandler:
    """What a server is given to serve a service, which is described in a pool."""
    methods = {method.name: _handler(method, servicer) for method in _described(service, of).methods}
    return grpc.method_handlers_generic_handler(service, methods)


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


def _reader(kind: type[Message]) -> Callable[[bytes], Message | None]:
    """Reads a message; None: it is none. (What is raised here gRPC would tell as an error of the server.)"""

    def read(data: bytes) -> Message | None:
        try:
            return kind.FromString(data)
        except DecodeError:
            return None

    return read


def _handler(method: MethodDescriptor, servicer: object) -> grpc.RpcMethodHandler:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower()
    behaviour = getattr(servicer, f"{name}_" if keyword.iskeyword(name) else name)
    make = getattr(grpc, f"{_shape(method)}_rpc_method_handler")
    return make(
        behaviour,
        request_deserializer=_reader(GetMessageClass(method.input_type)),
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )
