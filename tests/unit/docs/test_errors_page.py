"""The page of errors names every error there is."""

from pathlib import Path

from fencehold import errors

PAGE = Path(__file__).parents[3] / "docs/reference/errors.md"


def tree(root: type[Exception]) -> set[str]:
    return {root.__name__}.union(*(tree(child) for child in root.__subclasses__()))


def test_every_error_is_on_the_page() -> None:
    """Whatever Fencehold raises can be looked up."""
    page = PAGE.read_text()
    ours = {name for name in tree(errors.FenceholdError) if hasattr(errors, name)}
    assert [name for name in sorted(ours) if f"`{name}`" not in page and f"errors.{name}`" not in page] == []


def test_the_tree_is_drawn_in_the_docstring() -> None:
    """The module shows the whole tree before it defines it."""
    drawn = errors.__doc__ or ""
    ours = {name for name in tree(errors.FenceholdError) if hasattr(errors, name)}
    assert [name for name in sorted(ours) if f" {name}" not in drawn] == []
