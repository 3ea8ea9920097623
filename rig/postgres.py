"""Postgres on loopback: one server with its data in a folder, as safe as users run it: fsync is on.

A server refuses to run as root. Started by root, it runs as `postgres`, whom Debian's package brings, or as a
system user made here. So the folder must be one that this user can reach: `reachable_folder` makes one. A folder
that holds data is taken up again, with the port it had.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from rig.lasting import running_in
from rig.processes import Process, await_true, free_port, output_of

_OWNER = "owner"
_ROLE = "fencehold"
"""Whom nodes connect as: no superuser. It may make a schema, and nothing else."""
GUARDED = "guarded"
"""Another, who must show a password, which is its name."""
_USERS = ("postgres", "fencehold-test")
_PROGRAMS_MAX_S = 60.0
_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "warning",
}


@contextlib.contextmanager
def temporary_postgres(**settings: str) -> Iterator["Postgres"]:
    """A server that runs meanwhile, with these settings."""
    with running_in(reachable_folder(), partial(Postgres, settings=settings)) as server:
        yield server


def reachable_folder(parent: Path = Path("/var/tmp")) -> Path:
    """A new folder that the server's user can reach; the caller removes it."""
    folder = Path(tempfile.mkdtemp(prefix="fencehold-server-", dir=parent))
    folder.chmod(0o711)
    return folder


class Postgres:
    """One server. Its caller stops it."""

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are those of a new server, beside the usual ones; `set` changes them later."""
        self.folder = folder
        self.data = folder / "data"
        self._user = _user()
        self._settings = {**_SETTINGS, **(settings or {})}
        self.port = self._kept_port()
        self._process = Process("postgres", self._command(), folder, user=self._user)

    def url(self, schema: str = "fencehold", *, user: str = _ROLE, host: str = "", **options: str) -> str:
        """What `fencehold serve --engine` takes."""
        asked = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{user}@{host or f'127.0.0.1:{self.port}'}/postgres?schema={schema}{asked}"

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    def start(self) -> None:
        """Start it, with a new database if the folder has none, and wait until it serves."""
        is_new = not (self.data / "PG_VERSION").exists()
        if is_new:
            self._initialise()
        self._process.start()
        self._process.await_ready(self._answers)
        if is_new:
            self.sql(f"CREATE ROLE {_ROLE} LOGIN; CREATE ROLE {GUARDED} LOGIN PASSWORD '{GUARDED}'")
            self.sql(f"GRANT CREATE ON DATABASE postgres TO {_ROLE}")

    def stop(self) -> None:
        """End it as an operator would, without waiting for its clients."""
        self.resume()
        if self.is_running:
            os.kill(self._process.pid, signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                await_true(lambda: not self.is_running, "postgres ends", 10)
        self._process.stop()

    def kill(self) -> None:
        """`kill -9` of the postmaster and of every process it started."""
        # Stopped first, so that it starts no other meanwhile; its children would run for a while without it.
        self._process.pause()
        children = self._children()
        for pid in children:
            _signal(pid, signal.SIGKILL)
        self._process.kill()
        await_true(lambda: not any(_lives(pid) for pid in children), "postgres is gone")

    def restart(self) -> None:
        """Have it run again, whatever was done to it: after a kill, by recovery from its log."""
        self.resume()
        if not self.is_running:
            self.start()

    def pause(self) -> None:
        """SIGSTOP of all its processes: connections are accepted by the kernel, and never answered."""
        self._process.pause()
        for pid in self._children():
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._children():
            _signal(pid, signal.SIGCONT)
        self._process.resume()

    def sql(self, text: str) -> str:
        """What some statements give, run by the owner of everything: lines of the last one's rows."""
        with self._connected() as connection:
            cursor = connection.execute(text.encode())
            while cursor.nextset():
                pass
            rows = cursor.fetchall() if cursor.description else []
        return "\n".join("|".join("" if value is None else str(value) for value in row) for row in rows)

    def set(self, name: str, value: str | None) -> None:
        """Change one setting of the running server, or take the change back, and wait until it has been heard."""
        change = f"RESET {name}" if value is None else f"SET {name} = '{value}'"
        self.sql(f"ALTER SYSTEM {change}")
        self.sql("SELECT pg_reload_conf()")
        source = f"SELECT setting FROM pg_settings WHERE name = '{name}' AND sourcefile LIKE '%auto.conf'"
        await_true(lambda: self.sql(source) == (value or ""), f"{name} is {value!r}")

    def follow(self, primary: "Postgres") -> None:
        """Start as a standby of another server, with a copy of its data."""
        self.give(self.folder)
        command = [_program("pg_basebackup"), "-D", str(self.data), "-h", "127.0.0.1"]
        command += [
            "-p",
            str(primary.port),
            "-U",
            _OWNER,
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        ]
        self._run(command)
        self.start()

    def promote(self) -> None:
        """Have a standby take writes, and wait until it does."""
        self.sql("SELECT pg_promote(wait => true)")

    def give(self, path: Path) -> None:
        """Have a file or folder belong to the server's user."""
        if self._user is not None:
            shutil.chown(path, self._user)

    def _command(self) -> list[str]:
        # No socket in the file system: its path may be no longer than some hundred characters.
        where = ["-c", f"port={self.port}", "-c", "unix_socket_directories="]
        return [_program("postgres"), "-D", str(self.data), *where]

    def _connected(self) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=_OWNER, dbname="postgres", autocommit=True, connect_timeout=5
        )

    def _initialise(self) -> None:
        self.give(self.folder)
        command = [_program("initdb"), "-D", str(self.data), "-U", _OWNER, "-A", "trust", "-E", "UTF8"]
        # The new files need no sync: a machine that loses power now has no test to lose.
        self._run([*command, "--locale=C", "--no-sync", "--no-instructions"])
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())
        access = self.data / "pg_hba.conf"
        access.write_text(f"host all {GUARDED} 127.0.0.1/32 scram-sha-256\n{access.read_text()}")

    def _run(self, command: list[str]) -> str:
        return output_of(command, self.folder, user=self._user, timeout_s=_PROGRAMS_MAX_S)

    def _answers(self) -> bool:
        # It accepts connections, and refuses them, while it still recovers.
        with contextlib.suppress(psycopg.OperationalError):
            return self.sql("SELECT 1") == "1"
        return False

    def _children(self) -> list[int]:
        pid = self._process.pid
        with contextlib.suppress(OSError):
            return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    def _kept_port(self) -> int:
        file = self.folder / "port"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(str(free_port()))
        return int(file.read_text())


def _program(name: str) -> str:
    """Where a program of the server is: Debian keeps them off the path, by version."""
    found = shutil.which(name)
    if found is not None:
        return found
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    if not versions:
        raise FileNotFoundError(f"{name}: not found; install Debian's package postgresql, or run: make servers")
    return str(versions[-1])


def _user() -> str | None:
    """Whom the server runs as; None for the present user."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    subprocess.run(["useradd", "--system", "--no-create-home", _USERS[-1]], check=True, capture_output=True)
    return _USERS[-1]


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _lives(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
