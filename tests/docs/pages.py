"""Pages of Markdown as the tests see them: blocks of code with their marks, headings and links.

A mark is a comment on a line of its own, directly above a block or with one blank line between::

    <!-- test: skip-run why -->   compile it, but do not run it
    <!-- test: file name.py -->   the reader saves it under this name; commands below use it
    <!-- signatures: name -->     written from the code, see `test_sdk_page`
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^( *)```([\w-]*)\s*$")
_MARK = re.compile(r"^ *<!-- ([\w-]+): *(.*?) *-->\s*$")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_CODE = re.compile(r"`[^`\n]+`")


class Block(NamedTuple):
    """One fenced block."""

    page: str
    line: int
    """Of its first line of code."""
    language: str
    text: str
    marks: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def test_mark(self) -> tuple[str, str]:
        """The word of its `test:` mark and the rest of it."""
        word, _, rest = self.marks.get("test", "").partition(" ")
        return word, rest.strip()


def all_pages() -> list[Path]:
    """Every page of the project that a reader may come to."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return list(_blocks(name_of(path), path.read_text().splitlines()))


def _blocks(page: str, lines: list[str]) -> Iterator[Block]:
    marks: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if fence := _FENCE.match(line):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
            text = "\n".join(inner.removeprefix(fence[1]) for inner in lines[at + 1 : end]) + "\n"
            yield Block(page, at + 2, fence[2], text, marks)
            marks, at = {}, end
        elif mark := _MARK.match(line):
            marks = marks | {mark[1]: mark[2]}
        elif line.strip():
            marks = {}
        at += 1


def prose(path: Path) -> str:
    """The page without its fenced blocks."""
    kept, inside = [], False
    for line in path.read_text().splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def anchors(path: Path) -> set[str]:
    """What can be linked to on a page, as GitHub makes it of the headings."""
    found: dict[str, int] = {}
    names = set()
    for line in prose(path).splitlines():
        if heading := _HEADING.match(line):
            slug = _slug(heading[1])
            names.add(slug if slug not in found else f"{slug}-{found[slug]}")
            found[slug] = found.get(slug, 0) + 1
    return names


def _slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def links(path: Path) -> list[str]:
    """Where a page links to."""
    return _LINK.findall(_CODE.sub("", prose(path)))


def spans(path: Path) -> set[str]:
    """What stands in backticks on a page, outside its fenced blocks."""
    return {found[1:-1] for found in _CODE.findall(prose(path))}
