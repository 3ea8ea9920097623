"""The example with the wallet does what its page says, in each form."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rig.postgres import temporary_postgres
from tests.docs.pages import ROOT

SECONDS_MAX = 90


def played(*words: str) -> tuple[int, str]:
    """How the example ends, and what it writes."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.wallet", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_fenced_the_woken_worker_is_refused_and_the_books_are_right(tmp_path: Path) -> None:
    """Twelve debits of ten, each paid out once and taken from the wallet once."""
    code, said = played("--svg", str(tmp_path / "story.svg"))
    assert code == 0, said
    assert re.search(r"anna    is refused: fence \d+ is stale, the wallet has seen \d+\n", said)
    assert re.search(r"paid out 120, left 880, \d stale writes? refused\. The books are right\.$", said)
    drawn = ElementTree.parse(tmp_path / "story.svg").getroot()
    assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) > 12


def test_unfenced_it_loses_what_was_paid_out_meanwhile() -> None:
    """The late write sets the balance back, or is itself overwritten by who had read before it: money is lost."""
    code, said = played("--unfenced")
    assert code == 1, said
    assert "<- LATE: fence" in said
    assert re.search(r"paid out 120, left \d+: [1-9]0 were paid out .* The books are wrong\.$", said)


@pytest.mark.slow
def test_the_wallet_may_be_in_a_postgres() -> None:
    """The same story, guarded by the database's own transactions."""
    with temporary_postgres() as server:
        server.sql("CREATE DATABASE wallet")
        code, said = played("--postgres", f"postgresql://owner@127.0.0.1:{server.port}/wallet")
    assert code == 0, said
    assert re.search(r"\d stale writes? refused\. The books are right\.$", said)


@pytest.mark.parametrize("words", [["--workers", "1"], ["--debits", "3"], ["--fenced"]])
def test_what_it_cannot_play_is_said(words: list[str]) -> None:
    """With fewer the story would have no end."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.wallet", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "usage: python -m examples.wallet" in done.stderr
