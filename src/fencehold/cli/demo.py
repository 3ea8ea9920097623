"""`fencehold demo`: why a lock alone is not enough, played with real processes and a real server.

A worker takes a lock, reads a wallet, and is stopped (SIGSTOP: like a garbage collection, a live migration, a
closed laptop) for longer than its lease. Another is granted the lock and withdraws money. Then the first
continues where it was and writes. This is shown twice: once into a wallet that checks nothing, once into one that
refuses a smaller fence.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fencehold.cli.demo_worker import balance, open_wallet
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import Json
from fencehold.cli.output import console, hanging, say_json, to_person
from fencehold.errors import Unavailable

_START, _FIRST, _SECOND = 100, 50, 70
_PATIENCE_S = 15.0
_MARGIN = 10


class Outcome(NamedTuple):
    """How one act ended."""

    fenced: bool
    first_fence: int
    second_fence: int
    refused: bool
    balance: int
    handed_out: int

    @property
    def lost(self) -> int:
        """Money that was handed out and is still in the books."""
        return self.handed_out - (_START - self.balance)


class Stage:
    """The output of the demo: text, in colour for people, and pauses to read it."""

    def __init__(self, pace_s: float, silent: bool) -> None:
        self._pace_s = pace_s
        self._silent = silent
        self._out = console()

    def say(self, who: str, text: str, style: str = "") -> None:
        """One line of the demo."""
        if self._silent:
            return
        self._out.print(f"  {who:<8}", style=f"bold {style}".strip(), end="")
        self._out.print(hanging(text, _MARGIN) if to_person() else text, style=style)
        time.sleep(self._pace_s)

    def head(self, text: str) -> None:
        """A heading, or a line of narration."""
        if not self._silent:
            self._out.print(text, style="bold")
            time.sleep(self._pace_s)

    def tell(self, text: str) -> None:
        if not self._silent:
            self._out.print(text, style="dim")
            time.sleep(self._pace_s)


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="No pauses for reading, and a shorter lease.")] = False,
    as_json: Json = False,
) -> None:
    """Play the story of the paused holder: how a lock alone loses money, and how a fence does not."""
    stage = Stage(0.0 if fast or not to_person() else 0.9, silent=as_json)
    ttl_s = 0.4 if fast else 1.5
    with tempfile.TemporaryDirectory(prefix="fencehold-demo-") as place:
        server, url = _serve(Path(place))
        try:
            stage.head("Two workers, one wallet with 100 in it, and a lock around it.\n")
            outcomes = [_act(stage, Path(place), url, ttl_s, fenced) for fenced in (False, True)]
        finally:
            server.terminate()
            server.wait(_PATIENCE_S)
    if as_json:
        for act in outcomes:
            say_json({**act._asdict(), "lost": act.lost})
    stage.head("The lock decided who holds. The fence made it true at the wallet.")
    if [act.lost for act in outcomes] != [_SECOND, 0]:
        raise fail(
            Exit.INTERNAL, "the story did not end as it should", "this is a bug of Fencehold: please report it"
        )


def _serve(place: Path) -> tuple["subprocess.Popen[bytes]", str]:
    """A throwaway server, in a process of its own."""
    port_file = place / "port"
    command = [
        sys.executable,
        "-m",
        "fencehold.cli",
        "serve",
        "--memory",
        "--port",
        "0",
        "--port-file",
        str(port_file),
    ]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + _PATIENCE_S
    while not port_file.exists():
        if server.poll() is not None or time.monotonic() > until:
            server.kill()
            server.wait()
            raise Unavailable("the demo's server did not start")
        time.sleep(0.01)
    return server, f"fencehold://127.0.0.1:{port_file.read_text().strip()}"


def _act(stage: Stage, place: Path, url: str, ttl_s: float, fenced: bool) -> Outcome:
    """One act of the demo."""
    wallet = place / f"wallet-{int(fenced)}.sqlite"
    open_wallet(wallet, _START)
    stage.head("Second act: the wallet refuses a smaller fence" if fenced else "First act: a lock, and no fence")
    with Worker(url, wallet, ttl_s, fenced, _FIRST) as ann:
        first = ann.hear("granted")["fence"]
        stage.say("Ann", f"holds the lock with fence {first}, reads: {ann.hear('read')['balance']}", "cyan")
        ann.process.send_signal(signal.SIGSTOP)
        stage.say("Ann", f"is paused, for longer than her lease of {ttl_s:g} s …", "dim")
        with Worker(url, wallet, ttl_s, fenced, _SECOND) as bob:
            second = bob.hear("granted")["fence"]
            stage.say("Bob", f"is granted with fence {second}, reads: {bob.hear('read')['balance']}", "magenta")
            bob.go()
            bob.hear("written")
            stage.say("Bob", f"hands out {_SECOND}, writes: {balance(wallet)}", "magenta")
        # The signal to write is already there when she wakes: she writes at once, as paused code does.
        ann.go()
        ann.process.send_signal(signal.SIGCONT)
        stage.say("Ann", f"wakes up and continues where she was: hands out {_FIRST}, writes …", "cyan")
        refused = ann.hear("written", "refused")["said"] == "refused"
    return _told(stage, Outcome(fenced, first, second, refused, balance(wallet), 0), second)


def _told(stage: Stage, seen: Outcome, second: int) -> Outcome:
    """What the wallet looks like in the end, and what that means."""
    handed_out = _SECOND if seen.refused else _FIRST + _SECOND
    outcome = seen._replace(handed_out=handed_out)
    if seen.refused:
        stage.say("Wallet", f"refuses it: it has seen fence {second}, and {seen.first_fence} is smaller", "green")
    text = f"has {outcome.balance}; {handed_out} were handed out of {_START}: "
    if outcome.lost:
        stage.say("Wallet", text + f"{outcome.lost} are lost, though both held the lock\n", "bold red")
    else:
        stage.say("Wallet", text + "correct\n", "green")
    return outcome


class Worker:
    """A process that acquires the lock, reads, waits for the signal, and writes."""

    def __init__(self, url: str, wallet: Path, ttl_s: float, fenced: bool, amount: int) -> None:
        words = [url, str(wallet), str(ttl_s), str(int(fenced)), str(amount)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fencehold.cli.demo_worker", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def go(self) -> None:
        """Let it take its next step."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def hear(self, *expected: str) -> dict[str, Any]:
        """What it reports to have done."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        said: dict[str, Any] = json.loads(line) if line else {"said": "nothing"}
        if said["said"] not in expected:
            raise Unavailable(f"a worker of the demo said {said['said']!r}, not {' or '.join(expected)}")
        return said

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()
