"""Links between pages lead somewhere."""

from pathlib import Path

import pytest

from tests.docs.pages import all_pages, anchors, links, name_of

ELSEWHERE = ("http://", "https://", "mailto:")


@pytest.mark.parametrize("page", all_pages(), ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    """The file is there, and so is the heading."""
    assert [link for link in links(page) if not link.startswith(ELSEWHERE) and not leads(page, link)] == []


def leads(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))
