"""Reflection: what services there are, for tools such as grpcurl, in both of its versions.

They differ in their names only.
"""

from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from fencehold.doors.grpc.calls import Call
from fencehold.drivers.http2.codes import Code
from fencehold.wire import etcd_messages, grpc_messages
from fencehold.wire.messages import pool
from fencehold.wire.services import LOCK, SESSION, WATCH

NAMES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
SERVICES = {
    pool: (LOCK, SESSION, WATCH),
    etcd_messages.pool: ("etcdserverpb.Lease", "v3lockpb.Lock", "v3electionpb.Election"),
    grpc_messages.pool: ("grpc.health.v1.Health", *NAMES),
}
"""All services here, and where each is described."""


class Reflection:
    """Called by gRPC, as one of the versions."""

    def __init__(self, service: str) -> None:
        response = f"{service.rpartition('.')[0]}.ServerReflectionResponse"
        self._response = GetMessageClass(grpc_messages.pool.FindMessageTypeByName(response))
        self._names = sorted(name for names in SERVICES.values() for name in names)
        self._pools = tuple(SERVICES)

    async def server_reflection_info(self, requests: AsyncIterator[Any], _call: Call) -> AsyncIterator[Any]:
        async for request in requests:
            yield self._answer(request)

    def _answer(self, request: Any) -> Any:
        asked = request.WhichOneof("message_request")
        answer: Any = self._response(valid_host=request.host, original_request=request)
        if asked == "list_services":
            for name in self._names:
                answer.list_services_response.service.add(name=name)
            return answer
        file = self._file(asked, request)
        if file is None:
            answer.error_response.error_code = Code.NOT_FOUND
            answer.error_response.error_message = "not found"
        elif asked == "all_extension_numbers_of_type":
            # Nothing that is served has extensions.
            answer.all_extension_numbers_response.base_type_name = request.all_extension_numbers_of_type
        else:
            answer.file_descriptor_response.file_descriptor_proto.extend(_described(file).values())
        return answer

    def _file(self, asked: str | None, request: Any) -> FileDescriptor | None:
        for each in self._pools:
            found = _found(each, asked, request)
            if found is not None:
                return found
        return None


def _found(each: DescriptorPool, asked: str | None, request: Any) -> FileDescriptor | None:
    try:
        match asked:
            case "file_by_filename":
                return each.FindFileByName(request.file_by_filename)
            case "file_containing_symbol":
                return each.FindFileContainingSymbol(request.file_containing_symbol)
            case "all_extension_numbers_of_type":
                return each.FindMessageTypeByName(request.all_extension_numbers_of_type).file
    except KeyError:
        pass
    return None


def _described(file: FileDescriptor) -> dict[str, bytes]:
    """A file, and all that it imports, by their names."""
    description = FileDescriptorProto()
    file.CopyToProto(description)
    found = {file.name: description.SerializeToString()}
    for imported in file.dependencies:
        found |= _described(imported)
    return found
