"""What pages load: nothing that the policy of the page forbids, and nothing that is not there."""

import re
from pathlib import Path

import fencehold.dashboard
from fencehold.core.events import Kind

STATIC = Path(fencehold.dashboard.__file__).parent / "static"
MODULES = sorted(file for file in STATIC.rglob("*.js"))


def test_the_page_names_every_module_so_that_all_are_fetched_at_once() -> None:
    """One after the other they would take as many round trips as modules import one another."""
    page = (STATIC / "index.html").read_text()
    named = set(re.findall(r"/dashboard/static/([^\"]+\.js)", page))
    assert named == {str(file.relative_to(STATIC)) for file in MODULES}


def test_nothing_is_inline_and_no_text_is_taken_for_markup() -> None:
    """Neither in the page nor made by scripts; names come from anybody."""
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page)
    for file in MODULES:
        if "vendor" not in file.parts:
            text = file.read_text()
            found = re.findall(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|dangerouslySet| style=", text
            )
            assert not found, f"{file.name}: {found}"


def test_every_import_is_there() -> None:
    """There is no bundler that would say so."""
    for file in MODULES:
        for path in re.findall(r"from \"(\.[^\"]+)\"", file.read_text()):
            assert (file.parent / path).resolve() in MODULES, f"{file.name} imports {path}"


def test_nothing_is_loaded_from_elsewhere() -> None:
    """No address of another host in anything that a page loads."""
    for file in (*STATIC.rglob("*.js"), *STATIC.glob("*.css"), *STATIC.glob("*.html")):
        if "vendor" not in file.parts:
            assert not re.search(r"https?://(?!www\.w3\.org)", file.read_text()), file.name


def test_events_of_every_kind_are_listened_for() -> None:
    """A stream names the kind of each, and the browser tells a page only of kinds that it has named."""
    [named] = re.findall(r"const KINDS = \[(.*?)\]", (STATIC / "views/events.js").read_text(), re.DOTALL)
    kinds = re.findall(r"\"(\w+)\"", named)
    assert sorted(kinds) == sorted(kind.value for kind in Kind)
