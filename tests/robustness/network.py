"""Machines on a network of their own: a network namespace each, wired to one switch that can cut any of them off.

A machine that is cut off still has its cable: what it sends, and what is sent to it, vanishes without a word. That
is what makes a partition harder than a crash. It needs root; all names are of this run, and nothing is left of it.
"""

import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

_FORWARDING, _DISABLED = 3, 0
"""States of a port of the switch."""


class Network:
    """Machines by name, of up to four letters. This process is on the switch, too, and is never cut off."""

    def __init__(self, names: Sequence[str]) -> None:
        self._token = f"fh{random.randrange(16**6):06x}"
        self._net = f"10.{random.randrange(200, 250)}.{random.randrange(256)}"
        self._names = list(names)

    def host(self, name: str) -> str:
        """The address of a machine."""
        return f"{self._net}.{self._names.index(name) + 1}"

    def prefix(self, name: str) -> list[str]:
        """What stands before a command that is to run on a machine."""
        return ["ip", "netns", "exec", self._namespace(name)]

    def cut(self, name: str) -> None:
        """From its return on, nothing gets to the machine or away from it."""
        self._switch(name, _DISABLED)

    def heal(self, name: str) -> None:
        self._switch(name, _FORWARDING)

    def up(self) -> None:
        """Make all of it."""
        _do(f"ip link add {self._token} type bridge")
        _do(f"ip addr add {self._net}.254/24 dev {self._token}")
        _do(f"ip link set {self._token} up")
        for name in self._names:
            self._plug_in(name)

    def down(self) -> None:
        """Remove all of it. Processes on the machines must have ended before."""
        for name in self._names:
            with suppress(subprocess.CalledProcessError):
                _do(f"ip netns del {self._namespace(name)}")
        with suppress(subprocess.CalledProcessError):
            _do(f"ip link del {self._token}")

    def _plug_in(self, name: str) -> None:
        namespace, port = self._namespace(name), self._port(name)
        _do(f"ip netns add {namespace}")
        _do(f"ip link add {port} type veth peer name eth0 netns {namespace}")
        _do(f"ip link set {port} master {self._token} up")
        _do(f"ip -n {namespace} addr add {self.host(name)}/24 dev eth0")
        _do(f"ip -n {namespace} link set lo up")
        _do(f"ip -n {namespace} link set eth0 up")

    def _switch(self, name: str, state: int) -> None:
        _do(f"bridge link set dev {self._port(name)} state {state}")

    def _namespace(self, name: str) -> str:
        return f"{self._token}-{name}"

    def _port(self, name: str) -> str:
        return f"{self._token}{name}"


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """Machines on a switch, gone at the end."""
    made = Network(names)
    try:
        made.up()
        yield made
    finally:
        made.down()


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, f"{command} ({done.stderr.strip()})")
