"""What is looked for when slots move under load; they move in `python -m tests.robustness.moves 20`."""

import pytest

from tests.robustness.moves import OVERTAKEN_S, Claim, violations

SEEN = [Claim("a", 0.0, 1.0, 5, 2.0), Claim("a", 0.5, 2.1, 6, 3.0), Claim("b", 0.0, 0.1, 1, 9.0)]


def test_what_is_right_is_not_complained_about() -> None:
    """Names have fences of their own, and one who asks a little later may be granted a little sooner."""
    assert violations([*SEEN, Claim("a", 0.4, 3.1, 7, 3.2)]) == []


@pytest.mark.parametrize(
    ("claim", "complaint"),
    [
        (Claim("a", 2.0, 3.1, 6, 3.2), "came after"),
        (Claim("a", 2.0, 2.9, 7, 3.2), "while held"),
        (Claim("a", 0.5 - OVERTAKEN_S - 1, 3.1, 7, 3.2), "overtaken"),
    ],
)
def test_what_is_wrong_is_found(claim: Claim, complaint: str) -> None:
    """A fence that is not new, a second holder, and somebody who was overtaken by far."""
    (wrong,) = violations([*SEEN, claim])
    assert complaint in wrong
