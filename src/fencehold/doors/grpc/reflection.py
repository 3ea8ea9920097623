"""Reflection: what services there are, for tools such as grpcurl, in both of its versions.

They differ in their names only.
"""

from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from fencehold.wire.etcd_messages import pool as etcd_pool
from fencehold.wire.messages import pool
from fencehold.wire.services import LOCK, SESSION, WATCH

NAMES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
ETCD = ("etcdserverpb.Lease", "v3lockpb.Lock", "v3electionpb.Election")
_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


def handlers() -> tuple[grpc.GenericRpcHandler, ...]:
    """What a server is given to serve reflection."""
    servicer = reflection_aio.ReflectionServicer((LOCK, SESSION, WATCH, *ETCD, _HEALTH, *NAMES), _described())
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return tuple(grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in NAMES)


def _described() -> Any:
    """A pool with all that is served: ours, and what comes with gRPC."""
    everything = descriptor_pool.DescriptorPool()
    own = pool.FindServiceByName(LOCK).file
    # What it imports comes first, which one of them does not serve by itself.
    theirs = (etcd_pool.FindFileByName("kv.proto"), *(etcd_pool.FindServiceByName(name).file for name in ETCD))
    for file in (own, *theirs, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        description = FileDescriptorProto()
        file.CopyToProto(description)
        everything.Add(description)
    return everything
