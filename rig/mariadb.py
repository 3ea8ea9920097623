"""MariaDB on loopback: one server with its data in a folder, as safe as users run it: each commit is synced.

A server refuses to run as root. Started by root, it runs as `mysql`, whom Debian's package brings; the folder must
be one that this user can reach. A folder that holds data is taken up again, with the port it had.
"""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pymysql

from rig.processes import Process, free_port, output_of

DATABASE = "locks"
USER = "fencehold"
"""Whom clients connect as; its password is its name. It may do everything in the one database."""
READER = "reader"
"""Another, who may only read there."""
IN_THE_CLEAR: dict[str, Any] = {"ssl_disabled": True}
"""For PyMySQL, which else reads all authorities of the system for each connection: 20 ms of processor time."""
_USER = "mysql"
_OWNER = "root"
_INSTALL_S = 120.0
_SETTINGS = (
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--performance-schema=OFF",
    "--max-connections=200",
    "--skip-name-resolve",
    "--skip-log-bin",
)


class MariaDB:
    """One server. Its caller stops it."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = self._kept_port()
        self._user = _USER if os.geteuid() == 0 else None
        self._process = Process("mariadb", [*self._command(), *_SETTINGS, *settings], folder, user=self._user)

    def url(self, *, user: str = USER, port: int = 0, database: str = DATABASE, **options: str) -> str:
        """What `connect` takes."""
        asked = "&".join(f"{name}={value}" for name, value in options.items())
        return f"mysql://{user}:{user}@127.0.0.1:{port or self.port}/{database}" + (f"?{asked}" if asked else "")

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    def start(self) -> None:
        """Start it, with a new database if the folder has none, and wait until it serves."""
        is_new = not self.data.exists()
        if is_new:
            self._initialise()
        self._process.start()
        self._process.await_ready(self._answers, 60)
        if is_new:
            self._make_users()

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()

    def restart(self) -> None:
        """Have it run again, whatever was done to it: after a kill, by recovery from its log."""
        self.resume()
        if not self.is_running:
            self.start()

    def pause(self) -> None:
        """SIGSTOP: connections are accepted by the kernel, and never answered."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def sql(self, text: str, *values: object) -> "list[tuple[Any, ...]]":
        """The rows that a statement gives, run by the owner of everything."""
        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user=_OWNER, autocommit=True, connect_timeout=5, **IN_THE_CLEAR
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(text, values or None)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def kill_connections(self, user: str = USER) -> int:
        """`KILL CONNECTION` of all that a user has; returns how many."""
        threads = self.sql("SELECT id FROM information_schema.processlist WHERE user = %s", user)
        for (thread,) in threads:
            with contextlib.suppress(pymysql.err.OperationalError):
                self.sql(f"KILL CONNECTION {int(thread)}")
        return len(threads)

    def _command(self) -> list[str]:
        # A socket's path may be no longer than some hundred characters: its folder is short, or there is none.
        return [
            _program("mariadbd"),
            "--no-defaults",
            f"--datadir={self.data}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.folder / 's'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--tmpdir={self.folder}",
        ]

    def _initialise(self) -> None:
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        command = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={self.data}", "--skip-test-db"]
        # A server that starts clears its tmpdir of every table there, a neighbour's, too.
        command += [f"--tmpdir={self.folder}"]
        # Loopback is as safe as the socket here: its owner needs no password.
        command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
        try:
            output_of(command, self.folder, user=self._user, timeout_s=_INSTALL_S)
        except RuntimeError:
            shutil.rmtree(self.data, ignore_errors=True)
            raise

    def _make_users(self) -> None:
        self.sql(f"CREATE DATABASE {DATABASE}")
        for user, rights in ((USER, "ALL"), (READER, "SELECT")):
            self.sql(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY '{user}'")
            self.sql(f"GRANT {rights} ON {DATABASE}.* TO {user}@'127.0.0.1'")

    def _answers(self) -> bool:
        with contextlib.suppress(pymysql.err.OperationalError):
            return self.sql("SELECT 1") == [(1,)]
        return False

    def _kept_port(self) -> int:
        file = self.folder / "port"
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(str(free_port()))
        return int(file.read_text())


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        raise FileNotFoundError(f"{name}: not found; run: make servers (Debian calls it mariadb-server)")
    return found
