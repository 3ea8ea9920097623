"""Clients that die, and clients that fork: real processes, through the SDK."""

import os
import signal
import socket
import subprocess
import sys
import time

import fencehold
from tests.e2e.served import PATIENCE_S, Served

HOLDER = """
import sys, time
import fencehold

with fencehold.connect(sys.argv[1], ttl=30, grace=1) as client, client.lock("crash:wallet") as hold:
    print(hold.fence, flush=True)
    time.sleep(600)
"""


def test_a_holder_killed_with_9_is_seen_within_its_grace_and_not_after_its_ttl(server: Served) -> None:
    """The next one is granted about a second after the kill, though the session had thirty to live."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, server.url], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    fence = int(holder.stdout.readline())
    with fencehold.connect(server.url) as client:
        holder.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        with client.lock("crash:wallet", timeout=PATIENCE_S) as hold:
            waited = time.monotonic() - killed
            assert hold.fence > fence
    holder.wait()
    holder.stdout.close()
    assert 0.9 < waited < 10


PRE_FORK = """
import os, socket, sys
import fencehold

# The client is made, used and holding something before the workers are forked, as in a server that preloads its
# application.
listener = socket.socket(fileno=int(sys.argv[2]))
client = fencehold.connect(sys.argv[1])
master = client.lock("prefork:master").acquire()
workers = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        for _ in range(3):
            connection, _ = listener.accept()
            with client.lock("prefork:counter") as hold, connection:
                connection.sendall(f"{os.getpid()} {hold.fence}\\n".encode())
        client.close()
        os._exit(0)
    workers.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in workers]
master.check()
master.release()
client.close()
sys.exit(max(codes))
"""


def test_workers_of_a_pre_fork_server_each_have_a_session_of_their_own(server: Served) -> None:
    """Forked workers lock against one another through the client they inherited; the master keeps its own hold."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        command = [sys.executable, "-c", PRE_FORK, server.url, str(listener.fileno())]
        with subprocess.Popen(command, pass_fds=[listener.fileno()]) as process:
            answers = [_ask(listener.getsockname()) for _ in range(12)]
            assert process.wait(PATIENCE_S) == 0
    pids, fences = zip(*answers, strict=True)
    assert len(set(fences)) == 12
    assert len(set(pids)) == 4


def _ask(address: tuple[str, int]) -> tuple[int, int]:
    with socket.create_connection(address, PATIENCE_S) as connection, connection.makefile() as lines:
        pid, fence = lines.readline().split()
    return int(pid), int(fence)
