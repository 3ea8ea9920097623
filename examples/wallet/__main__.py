"""`python -m examples.wallet`: the story of a holder that was stopped, told with real processes.

Exits with 1 if the books are wrong in the end.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from examples.wallet import picture, story


def main(words: list[str]) -> int:
    """Play it and tell it."""
    asked = _parser().parse_args(words)
    with tempfile.TemporaryDirectory(prefix="wallet-") as folder:
        told = story.told(
            Path(folder),
            fenced=not asked.unfenced,
            workers=asked.workers,
            debits=asked.debits,
            where=asked.postgres,
        )
    text = [*picture.lines(told), "", *picture.bars(told), "", picture.verdict(told)]
    sys.stdout.write("\n".join(text) + "\n")
    if asked.svg is not None:
        asked.svg.write_text(picture.svg(told))
    return 1 if told.lost else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.wallet", description="A holder is stopped and wakes."
    )
    parser.add_argument("--unfenced", action="store_true", help="let the wallet take every write")
    parser.add_argument("--workers", type=int, choices=range(2, 6), default=3, metavar="2..5")
    parser.add_argument("--debits", type=int, choices=range(4, 11), default=4, metavar="4..10", help="by each")
    parser.add_argument("--svg", type=Path, metavar="PATH", help="draw it, too")
    parser.add_argument("--postgres", default="", metavar="URL", help="have the wallet there, not in SQLite")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
