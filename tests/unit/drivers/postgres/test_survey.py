"""A survey of Postgres servers: whom commits wait for, by the names in the setting."""

import pytest

from fencehold.drivers.postgres.survey import _standby, names_in


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("", []),
        ("*", []),
        ("a", ["a"]),
        ("a, b", ["a", "b"]),
        ("FIRST 2 (a, b, c)", ["a", "b", "c"]),
        ("any 1 (a, *)", ["a"]),
        ('ANY 1 ("web-1", "say ""hi""")', ["web-1", 'say "hi"']),
        ("2 (a, b)", ["a", "b"]),
        ("first", ["first"]),
    ],
)
def test_the_standbys_that_commits_wait_for_are_read(setting: str, names: list[str]) -> None:
    """Quoted or not; a star is anyone."""
    assert names_in(setting) == names


def test_a_standby_that_catches_up_is_not_up_yet() -> None:
    """One that is listed without its state is: who asks may not know more."""
    assert not _standby("b", "10.0.0.2", "catchup", "async").is_up
    assert _standby("b", "10.0.0.2", "streaming", "sync") == ("b 10.0.0.2", True, "standby", "sync")
    assert _standby("b", "", None, None).is_up
