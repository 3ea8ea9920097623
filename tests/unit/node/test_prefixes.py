"""The index of prefixes finds who watches a name, at a cost that others do not add to."""

from hypothesis import given
from hypothesis import strategies as st

from fencehold.node.prefixes import Prefixes

words = st.text("ab", max_size=6)


@given(
    st.lists(st.tuples(st.booleans(), words, st.integers(0, 3)), max_size=40),
    st.lists(st.lists(st.text("ab", min_size=1, max_size=8), max_size=3), max_size=10),
)
def test_who_is_found_is_who_watches(changes: list[tuple[bool, str, int]], asked: list[list[str]]) -> None:
    """After any additions and removals it finds those whose prefix begins a name, and keeps two nodes each."""
    prefixes: Prefixes[int] = Prefixes()
    watched: set[tuple[str, int]] = set()
    for is_added, prefix, watcher in changes:
        (prefixes.add if is_added else prefixes.discard)(prefix, watcher)
        (watched.add if is_added else watched.discard)((prefix, watcher))
        assert len(prefixes) <= 2 * len({prefix for prefix, _ in watched})
    for names in asked:
        expected = {who for prefix, who in watched if not prefix or any(name.startswith(prefix) for name in names)}
        assert set(prefixes.find(tuple(names))) == expected
    for prefix, watcher in watched:
        prefixes.discard(prefix, watcher)
    assert len(prefixes) == 0


def test_one_who_watches_two_of_the_names_is_found_once() -> None:
    """Who watches several prefixes, of which none begins another, is found once whatever the names are."""
    prefixes: Prefixes[str] = Prefixes()
    for prefix in ("a", "b"):
        prefixes.add(prefix, "one")
    prefixes.add("", "all")
    assert prefixes.find(("b1", "a1")) == ("all", "one")
    assert prefixes.find(("a1",)) == ("all", "one")
    assert prefixes.find(()) == ("all",)


class Letter(str):
    """A name that counts how often it is compared with a piece of a prefix."""

    compared = 0

    def startswith(self, *arguments: object) -> bool:
        Letter.compared += 1
        return super().startswith(*arguments)  # type: ignore[arg-type]


def test_a_name_costs_no_more_than_its_letters_however_many_are_watched() -> None:
    """A name unlike all prefixes is compared with one at the most; one that is like many, once a letter."""
    prefixes: Prefixes[int] = Prefixes()
    for number in range(5_000):
        prefixes.add(f"watched:{number}:", number)
    for depth in range(256):
        prefixes.add(depth * "a" + "b", depth)
        prefixes.add((depth + 1) * "a", depth)
    for name, compared_max in (
        ("bench:1", 1),
        ("other", 0),
        ("watched", 1),
        (40 * "a" + "c", 41),
        (300 * "a", 300),
    ):
        Letter.compared = 0
        prefixes.find((Letter(name),))
        assert Letter.compared <= compared_max
