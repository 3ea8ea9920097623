"""A gRPC client as somebody outside of the project makes it: of the description alone, by the usual compiler."""

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from tests.e2e.served import ended, start, until

ROOT = Path(__file__).parents[2]
SERVICE_CONFIG = (ROOT / "proto/fencehold/v1/service_config.json").read_text()


class Compiled:
    """What the compiler made: the messages and the stubs."""

    def __init__(self, place: Path) -> None:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto/fencehold/v1'}"]
        command += [f"--python_out={place}", f"--grpc_python_out={place}", "fencehold.proto"]
        subprocess.run(command, check=True)
        sys.path.insert(0, str(place))
        try:
            self.messages: Any = importlib.import_module("fencehold_pb2")
            self.stubs: Any = importlib.import_module("fencehold_pb2_grpc")
        finally:
            sys.path.remove(str(place))


class Client:
    """The stubs on one channel, and a session if one was opened."""

    def __init__(self, compiled: Compiled, port: int, *, retries: bool = True) -> None:
        self.m = compiled.messages
        options = (("grpc.service_config", SERVICE_CONFIG), ("grpc.enable_retries", int(retries)))
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
        self.locks: Any = compiled.stubs.LockServiceStub(self.channel)
        self.sessions: Any = compiled.stubs.SessionServiceStub(self.channel)
        self.watches: Any = compiled.stubs.WatchServiceStub(self.channel)
        self.session = ""

    def open(self, **said: Any) -> "Client":
        self.session = self.sessions.Open(self.m.OpenRequest(**said)).session
        return self

    def lock(self, name: str, timeout: float | None = 10, **said: Any) -> Any:
        """The hold, or None if it was not acquired in time."""
        request = self.m.LockRequest(session=self.session, name=name, **said)
        answer = self.locks.Lock(request, timeout=timeout)
        return answer.hold if answer.HasField("hold") else None

    def unlock(self, hold: Any) -> None:
        self.locks.Unlock(self.m.UnlockRequest(session=self.session, hold_id=hold.hold_id))

    def explain(self, name: str) -> Any:
        return self.locks.Explain(self.m.ExplainRequest(name=name)).explanation

    def close(self) -> None:
        if self.session:
            self.sessions.Close(self.m.CloseRequest(session=self.session))
        self.channel.close()


class Talk:
    """A Session stream: what was told on it, and keep-alives to be sent."""

    def __init__(self, client: Client) -> None:
        self._up: Queue[Any] = Queue()
        self.told: list[Any] = []
        self.client = client
        self.send(sequence=0, session=client.session)
        self.call = client.sessions.Session(iter(self._up.get, None))
        threading.Thread(target=self._read, daemon=True).start()
        self.wait("attached")

    def send(self, **said: Any) -> None:
        self._up.put(self.client.m.SessionRequest(**said))

    def wait(self, kind: str) -> Any:
        """The first message of that kind."""
        until(lambda: any(one.WhichOneof("message") == kind for one in self.told))
        return next(getattr(one, kind) for one in self.told if one.WhichOneof("message") == kind)

    def _read(self) -> None:
        try:
            for message in self.call:
                self.told.append(message)
        except grpc.RpcError:
            pass


def reason_of(error: grpc.RpcError) -> str:
    """The stable word of an error, from its details."""
    trailing = dict(error.trailing_metadata())
    info = ErrorInfo()
    assert Status.FromString(trailing["grpc-status-details-bin"]).details[0].Unpack(info)
    return str(info.reason)


@contextmanager
def door(place: Path, kind: str, url: str, *options: str) -> Iterator[int]:
    """A listener in a process of its own; its port."""
    port_file = place / f"{kind}-port"
    process = start("listener", kind, "--url", url, "--port", "0", "--port-file", str(port_file), *options)
    try:
        until(lambda: port_file.exists() or process.poll() is not None)
        if process.poll() is not None:
            raise AssertionError(f"it does not listen: {ended(process)}")
        yield int(port_file.read_text())
    finally:
        process.terminate()
        ended(process)
