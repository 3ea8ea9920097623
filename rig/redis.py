"""Redis on loopback: one server, several that know nothing of one another, or a master, its replica and three
sentinels. Nothing is kept on disk unless requested.
"""

import contextlib
import subprocess
from collections.abc import Mapping
from pathlib import Path

import redis

from rig.lasting import Lasting
from rig.processes import Process, await_true, free_port

_ASK_S = 2.0
_DOWN_AFTER_MS = 1_000
SERVICE = "locks"

_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift_s(void) {
  const char *path = getenv("CLOCK_SHIFT_FILE");
  FILE *file = path ? fopen(path, "r") : NULL;
  long shift = 0;
  if (file) {
    if (fscanf(file, "%ld", &shift) != 1) shift = 0;
    fclose(file);
  }
  return shift;
}

int gettimeofday(struct timeval *tv, void *zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int code = real(tv, zone);
  if (tv) tv->tv_sec += shift_s();
  return code;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(id, ts);
  if (id == CLOCK_REALTIME) ts->tv_sec += shift_s();
  return code;
}
"""


class Redis(Lasting):
    """One server, numbered by its port. Its caller stops it."""

    def __init__(self, folder: Path, *, flags: tuple[str, ...] = (), env: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.folder = folder / f"redis-{self.port}"
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *flags]
        self._process = Process("redis", command, self.folder, env=env)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{self.endpoint}"

    def start(self) -> None:
        if not self._process.is_running:
            self._process.start()
        self._process.await_ready(self.answers)

    def stop(self) -> None:
        self._process.kill()

    def kill(self) -> None:
        """`kill -9`: what it held in memory is gone."""
        self._process.kill()

    def restart(self) -> None:
        """`kill -9`, and start it again, empty."""
        self._process.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: it accepts connections, and says nothing."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def ask(self, *words: str | int) -> object:
        """What it answers to a command."""
        with redis.Redis(port=self.port, socket_timeout=_ASK_S, decode_responses=True) as client:
            return client.execute_command(*words)

    def all_keys(self) -> list[str]:
        """The keys it has, of all that is held or waited for."""
        found = self.ask("KEYS", "*")
        assert isinstance(found, list)
        return sorted(found)

    def answers(self) -> bool:
        with contextlib.suppress(redis.exceptions.RedisError, OSError):
            return bool(self.ask("PING"))
        return False


class Several(Lasting):
    """Servers that know nothing of one another."""

    def __init__(self, folder: Path, size: int) -> None:
        self.servers = [Redis(folder) for _ in range(size)]

    @property
    def endpoints(self) -> str:
        return ",".join(server.endpoint for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.start()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


class Watched(Lasting):
    """A master and its replica, watched by three sentinels."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.servers = [Redis(folder, flags=_quick()) for _ in range(2)]
        self._ports = [free_port() for _ in range(3)]
        self._sentinels = [self._sentinel(port) for port in self._ports]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    @property
    def master(self) -> Redis:
        """Whom the sentinels take for the master."""
        with redis.Redis(port=self._ports[0], socket_timeout=_ASK_S, decode_responses=True) as sentinel:
            _, port = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(server for server in self.servers if server.port == int(port))

    def start(self) -> None:
        first, second = self.servers
        first.start()
        second.start()
        second.ask("REPLICAOF", "127.0.0.1", first.port)
        await_true(lambda: "master_link_status:up" in _info(second), "the replica follows")
        for sentinel in self._sentinels:
            sentinel.start()
        await_true(self._are_agreed, "the sentinels know one another")

    def stop(self) -> None:
        for sentinel in self._sentinels:
            sentinel.kill()
        for server in self.servers:
            server.kill()

    def pause_sentinel(self) -> None:
        """SIGSTOP the sentinel that is named first."""
        self._sentinels[0].pause()

    def resume_sentinel(self) -> None:
        self._sentinels[0].resume()

    def fail_over(self) -> None:
        """Have the sentinels make the replica the master, as an operator does."""
        with redis.Redis(port=self._ports[0], socket_timeout=_ASK_S) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)

    def await_other_master(self, old: Redis) -> Redis:
        """Wait until the sentinels have made another server the master."""
        await_true(
            lambda: self.master is not old and "role:master" in _info(self.master), "there is another master"
        )
        return self.master

    def await_replica(self, server: Redis) -> None:
        """Wait until a server follows another."""
        await_true(lambda: "role:slave" in _info(server), "it is a replica")

    def _sentinel(self, port: int) -> Process:
        folder = self._folder / f"sentinel-{port}"
        folder.mkdir(parents=True)
        file = folder / "sentinel.conf"
        file.write_text(
            f"port {port}\nbind 127.0.0.1\nsentinel monitor {SERVICE} 127.0.0.1 {self.servers[0].port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {_DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 5000\n"
        )
        return Process("sentinel", ["redis-server", str(file), "--sentinel"], folder)

    def _are_agreed(self) -> bool:
        with contextlib.suppress(redis.exceptions.RedisError, OSError):
            return all(self._knows_all(port) for port in self._ports)
        return False

    def _knows_all(self, port: int) -> bool:
        with redis.Redis(port=port, socket_timeout=_ASK_S, decode_responses=True) as sentinel:
            said = sentinel.execute_command("SENTINEL", "MASTER", SERVICE)
        known = said if isinstance(said, dict) else dict(zip(said[::2], said[1::2], strict=True))
        return (int(known["num-other-sentinels"]), int(known["num-slaves"])) == (2, 1)


class Clock:
    """A clock of day that can be set, for servers that are started with `env`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file, source, library = folder / "shift", folder / "shim.c", folder / "shim.so"
        source.write_text(_SHIM)
        command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        self.env = {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(self._file)}

    def set_forward(self, seconds: int) -> None:
        """From now on it is so much later."""
        self._file.write_text(str(seconds))


def _quick() -> tuple[str, ...]:
    # A replica must not wait for others that may want the same copy.
    return ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


def _info(server: Redis) -> str:
    with contextlib.suppress(redis.exceptions.RedisError, OSError):
        with redis.Redis(port=server.port, socket_timeout=_ASK_S, decode_responses=True) as client:
            said = client.info("replication")
        return "\n".join(f"{key}:{value}" for key, value in said.items())
    return ""
