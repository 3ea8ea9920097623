"""etcd's own Lock API: the service `v3lockpb.Lock`, called as any client of etcd calls it.

Fencehold itself does not use it, so the few messages are described here; protobuf makes of that the same classes
it makes of a compiled file. What an answer says beyond the key is skipped.
"""

import asyncio
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fencehold.drivers.etcd import messages, services

LEASE_TTL_S = 30

_MESSAGES = {
    "LockRequest": {"name": (1, "TYPE_BYTES"), "lease": (2, "TYPE_INT64")},
    "LockResponse": {"key": (2, "TYPE_BYTES")},
    "UnlockRequest": {"key": (1, "TYPE_BYTES")},
    "UnlockResponse": {},
}
_OPTIONS = (
    # A channel is a connection of its own, as the clients of different processes have.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


def _classes() -> dict[str, Any]:
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="v3lock.proto", package="v3lockpb", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            message.field.add(
                name=field, number=number, type=getattr(field_type, kind), label=field_type.LABEL_OPTIONAL
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v3lockpb.{name}")) for name in _MESSAGES
    }


_CLASSES = _classes()


def channel(endpoint: str) -> Any:
    """A connection to one member."""
    return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)


class Session:
    """A client of etcd that locks: one connection, one lease for all it holds, kept alive.

    A name that is locked twice under one lease is not waited for: who is to wait for another has a lease of its
    own, and may share the connection of that other (`over`).
    """

    def __init__(self, endpoint: str, over: "Session | None" = None) -> None:
        self._is_shared = over is not None
        self._channel: Any = channel(endpoint) if over is None else over._channel
        self._leases = services.Lease(self._channel)
        self._lock = self._method("Lock")
        self._unlock = self._method("Unlock")
        self._lease = 0
        self._living: asyncio.Task[None] | None = None

    async def open(self) -> None:
        granted = await self._leases.LeaseGrant(messages.LeaseGrantRequest(TTL=LEASE_TTL_S))
        self._lease = granted.ID
        self._living = asyncio.create_task(self._live())

    async def lock(self, name: str) -> bytes:
        """Lock a name, once it is free; returns the key to unlock it by."""
        granted = await self._lock(_CLASSES["LockRequest"](name=name.encode(), lease=self._lease))
        return bytes(granted.key)

    async def unlock(self, key: bytes) -> None:
        await self._unlock(_CLASSES["UnlockRequest"](key=key))

    async def turn(self, name: str) -> None:
        """Lock a name and unlock it."""
        await self.unlock(await self.lock(name))

    async def close(self) -> None:
        if self._living is not None:
            self._living.cancel()
            await asyncio.gather(self._living, return_exceptions=True)
            await self._leases.LeaseRevoke(messages.LeaseRevokeRequest(ID=self._lease))
        if not self._is_shared:
            await self._channel.close()

    async def _live(self) -> None:
        stream = self._leases.LeaseKeepAlive()
        while True:
            await stream.write(messages.LeaseKeepAliveRequest(ID=self._lease))
            await stream.read()
            await asyncio.sleep(LEASE_TTL_S / 3)

    def _method(self, name: str) -> Any:
        return self._channel.unary_unary(
            f"/v3lockpb.Lock/{name}",
            request_serializer=_CLASSES[f"{name}Request"].SerializeToString,
            response_deserializer=_CLASSES[f"{name}Response"].FromString,
        )
