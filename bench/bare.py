"""What nothing durable over a socket can undercut: a synced append, and a round trip on loopback."""

import os
import socket
import tempfile
import threading
from pathlib import Path
from time import perf_counter_ns

from bench.latency import percentile
from bench.samples import Figures

_RECORD = b"x" * 128


def bare(folder: str, count: int) -> Figures:
    """The medians of both, and their sum."""
    sync_ns, trip_ns = sorted(_syncs(folder, count)), sorted(_trips(count))
    sync_us, trip_us = percentile(sync_ns, 50) / 1e3, percentile(trip_ns, 50) / 1e3
    return {"sync_p50_us": sync_us, "trip_p50_us": trip_us, "p50_us": sync_us + trip_us}


def _syncs(folder: str, count: int) -> list[int]:
    with tempfile.NamedTemporaryFile(dir=Path(folder)) as file:
        latencies = []
        for _ in range(count):
            begun = perf_counter_ns()
            os.write(file.fileno(), _RECORD)
            os.fdatasync(file.fileno())
            latencies.append(perf_counter_ns() - begun)
    return latencies


def _trips(count: int) -> list[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = threading.Thread(target=_echo, args=(server,))
        echo.start()
        with socket.create_connection(server.getsockname()) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            latencies = [_trip(client) for _ in range(count)]
        echo.join()
    return latencies


def _trip(client: socket.socket) -> int:
    begun = perf_counter_ns()
    client.sendall(_RECORD)
    client.recv(len(_RECORD))
    return perf_counter_ns() - begun


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(len(_RECORD)):
            connection.sendall(data)
