"""Completion: bash's words put together again, and names that a shell would act on left out."""

import pytest

from fencehold.cli.completion import _rejoined, asked_words, is_plain


@pytest.mark.parametrize(
    ("words", "at", "joined", "place"),
    [
        (["f", "info", "jo"], 2, ["f", "info", "jo"], 2),
        (["f", "info", ""], 2, ["f", "info", ""], 2),
        (["f", "info", "jobs", ":"], 3, ["f", "info", "jobs:"], 2),
        (["f", "info", "jobs", ":", "ni"], 4, ["f", "info", "jobs:ni"], 2),
        (["f", "info", "a", ":", "b", ":", "c", "--json"], 6, ["f", "info", "a:b:c", "--json"], 2),
        (
            ["f", "ls", "--url", "=", "fencehold", ":", "//h", ":", "1", "x"],
            9,
            ["f", "ls", "--url=fencehold://h:1", "x"],
            3,
        ),
        (["f"], 1, ["f"], 1),
    ],
)
def test_what_bash_has_broken_is_put_together(words: list[str], at: int, joined: list[str], place: int) -> None:
    """Colons and equal signs are of the word, and the word being written is found again."""
    assert _rejoined(words, at) == (joined, place)


@pytest.mark.parametrize("name", ["nightly-report", "jobs:nightly", "a/b.c@d", "Käse", "日本", "x=1", "50%"])
def test_plain_names_are_offered(name: str) -> None:
    """They are one word in every shell."""
    assert is_plain(name)


@pytest.mark.parametrize(
    "name",
    ["", "a b", "$(id)", "`id`", "a;b", "a'b", 'a"b', "a\\b", "a|b", "a*", "~root", "-x", "=ls", "a\nb", "a\x1b"],
)
def test_names_that_a_shell_would_act_on_are_not_offered(name: str) -> None:
    """They are other people's words."""
    assert not is_plain(name)


def test_the_command_that_is_completed_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no other need be loaded; not while its own name is being written."""
    monkeypatch.setenv("COMP_WORDS", "fencehold\ninfo\njo")
    assert asked_words() == ["info"]
    monkeypatch.delenv("COMP_WORDS")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "fencehold info jo")
    assert asked_words() == ["info"]
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "fencehold inf")
    assert asked_words() == []
