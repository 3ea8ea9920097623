"""How progress is shown."""

import io

from rich.console import Console

from bench.progress import shown


def test_a_log_gets_one_plain_line_per_step() -> None:
    """Without a terminal there is no bar and no colour."""
    console = Console(file=io.StringIO(), width=20)
    with shown(console, turns=2) as watcher:
        watcher.note("warm-up: [a] with a rather long name")
        watcher.advance()
        watcher.note("round 1 of 1: b")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "[0/2] warm-up: [a] with a rather long name\n[1/2] round 1 of 1: b\n"


def test_a_terminal_gets_a_bar() -> None:
    """With a terminal the turns are counted in place."""
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with shown(console, turns=2) as watcher:
        watcher.note("round 1 of 1: [b]")
        watcher.advance()
    assert isinstance(console.file, io.StringIO)
    assert "1/2" in console.file.getvalue()
    assert "[b]" in console.file.getvalue()
