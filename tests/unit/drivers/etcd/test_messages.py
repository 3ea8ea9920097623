"""The messages of etcd's protocol: made of their description, and no burden to whoever imports them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def python(*words: str) -> None:
    """Run it in a process of its own, and see it end well."""
    ended = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_messages_are_what_their_description_makes() -> None:
    """Whoever changes messages.proto, or messages.py by hand, is told to run `make messages`."""
    python("scripts/messages", "--check")


def test_a_node_on_etcd_needs_no_grpc() -> None:
    """It costs 17 MB and a start that is felt; what is sent and read is protobuf alone."""
    python(
        "-c",
        "import sys, fencehold.engines.etcd, fencehold.backends.etcd\n"
        "found = {'grpc', 'aetcd'} & set(sys.modules)\n"
        "assert not found, found",
    )


ANOTHER_CLIENT = """
from google.protobuf import descriptor_pb2, descriptor_pool
theirs = descriptor_pb2.FileDescriptorProto(name="rpc.proto", package="etcdserverpb", syntax="proto3")
theirs.message_type.add(name="PutRequest").field.add(name="other", number=9, type="TYPE_STRING")
descriptor_pool.Default().AddSerializedFile(theirs.SerializeToString())
from fencehold.drivers.etcd.messages import PutRequest
assert PutRequest.FromString(PutRequest(key=b"key").SerializeToString()).key == b"key"
"""


def test_another_client_of_etcd_in_the_process_disturbs_nothing() -> None:
    """It has described messages of the same names, in the pool that all share."""
    python("-c", ANOTHER_CLIENT)
