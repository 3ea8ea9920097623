"""Templates of names: declared, found, and bounded."""

import uuid

import pytest

from fencehold.errors import UsageError
from fencehold.observe.templates import OTHER, TEMPLATES_MAX, Templates


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("order:17", "order:*"),
        ("order:17:line:3", "order:*:line:*"),
        (f"user/{uuid.UUID(int=5)}/mail", "user/*/mail"),
        ("blob:9f8e7d6c5b4a", "blob:*"),
        ("deploy:facade", "deploy:facade"),
        ("deadbeef", "deadbeef"),
        ("nightly", "nightly"),
        ("v2", "v*"),
    ],
)
def test_what_changes_in_a_name_is_found(name: str, template: str) -> None:
    """Numbers, long hexadecimal ones and UUIDs are left out; words stay."""
    assert Templates().of(name) == template


def test_declared_templates_come_first() -> None:
    """In their order, and a field stands for anything up to the next separator."""
    templates = Templates(["order:{id}", "tenant:{tenant}/{what}"])
    assert templates.of("order:abc") == "order:{id}"
    assert templates.of("order:abc:more") == "order:abc:more"
    assert templates.of("tenant:a/b") == "tenant:{tenant}/{what}"


def test_there_is_a_bound_however_many_names_there_are() -> None:
    """Beyond it every name is `other`; those that are known stay."""
    templates = Templates()
    letters = "abcdefghijklmnopqrst"
    names = [a + b + c for a in letters for b in letters for c in letters]
    found = {templates.of(name) for name in names}
    assert len(found) == TEMPLATES_MAX + 1
    assert OTHER in found
    assert templates.of(names[0]) == names[0]


@pytest.mark.parametrize("template", ["", "order:{id", "order:{}", "x" * 200])
def test_what_is_no_template_is_refused(template: str) -> None:
    """With a word of how one looks."""
    with pytest.raises(UsageError, match="such as order:"):
        Templates([template])
