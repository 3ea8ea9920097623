"""Facts about the machine."""

from bench.host import facts


def test_the_facts_name_what_a_figure_depends_on() -> None:
    """Cores, Python and platform stand beside every result."""
    known = facts()
    assert list(known) == ["cores", "python", "platform"]
    assert int(known["cores"]) >= 1
