"""Tokens: one word, whole or refused, and silent about the secret in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.cli.tokens import Token, decode
from fencehold.errors import UsageError


@given(st.integers(0, 1 << 53), st.text(), st.integers(0, 1 << 53), st.text())
def test_a_token_comes_back_as_it_was(session: int, secret: str, fence: int, name: str) -> None:
    """Whatever the name; and it is one word that no shell touches."""
    token = Token(session, secret, fence, name)
    text = token.encode()
    assert decode(text) == token
    assert decode(f" {text}\n") == token
    assert all(char.isalnum() or char in "-_." for char in text)


def test_a_token_knows_its_tier() -> None:
    """If one was said; those of before have none."""
    token = Token(1, "secret", 2, "name", "EFFICIENCY")
    assert decode(token.encode()) == token
    assert decode(Token(1, "secret", 2, "name").encode()).tier == ""


@pytest.mark.parametrize("text", ["", "fh1.", "fh1.!!!!", "fh1.WzFd", "fh1.eyJhIjoxfQ", "hello", "ü"])
def test_what_is_no_token_is_refused(text: str) -> None:
    """With one sentence, and without repeating it."""
    with pytest.raises(UsageError, match="not a token"):
        decode(text)


def test_its_repr_hides_the_secret() -> None:
    """A token may stand in a traceback."""
    assert "hidden" not in repr(Token(1, "hidden", 2, "name"))
