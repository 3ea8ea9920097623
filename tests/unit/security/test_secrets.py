"""Secrets: kept so that nobody can read them, checked so that nobody else waits."""

import asyncio

import pytest

from fencehold.core.policy import User
from fencehold.errors import Overloaded
from fencehold.security import secrets
from fencehold.security.secrets import Secrets, hashed, matches


def test_a_secret_is_kept_salted_and_found_right() -> None:
    """Two hashes of one secret differ; each takes that secret and no other."""
    one, other = hashed("s3cret"), hashed("s3cret")
    assert one != other
    assert "s3cret" not in one
    assert matches("s3cret", one)
    assert not matches("s3cret ", one)
    assert not matches("", one)


@pytest.mark.parametrize("kept", ["", "plain", "scrypt$1$2$3$x", "scrypt$0$8$1$AAAA$AAAA", "md5$1$1$1$AAAA$AAAA"])
def test_what_is_no_hash_takes_no_secret(kept: str) -> None:
    """What cannot be read admits nobody, and ends nothing."""
    assert not matches("plain", kept)


def test_a_secret_that_was_right_is_remembered_until_it_changes() -> None:
    """Who comes again at once is not checked again; with another hash in its place it is."""

    async def scenario() -> None:
        checker = Secrets()
        user = User(secrets=(hashed("a"),))
        assert not checker.recall("ann", "a", user)
        assert await checker.check("ann", "a", user)
        assert checker.recall("ann", "a", user)
        assert not checker.recall("bob", "a", user)
        assert not checker.recall("ann", "b", user)
        assert not checker.recall("ann", "a", User(secrets=(hashed("a"),)))
        assert not checker.recall("ann", "a", User(secrets=user.secrets, disabled=True))
        checker.close()

    asyncio.run(scenario())


def test_any_of_several_secrets_admits_and_none_where_there_are_none() -> None:
    """A secret is changed by having two for a while. A user without any, or one that is not there, has none."""

    async def scenario() -> None:
        checker = Secrets()
        user = User(secrets=(hashed("old"), hashed("new")))
        assert [await checker.check("ann", each, user) for each in ("old", "new", "other")] == [True, True, False]
        assert not await checker.check("ann", "", User())
        assert not await checker.check("eve", "x", None)
        assert not await checker.check("ann", "x" * 2_000, user)
        assert not await checker.check("ann", "new", User(secrets=user.secrets, disabled=True))
        checker.close()

    asyncio.run(scenario())


def test_many_logins_at_once_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than may wait for a thread are refused at once: a flood of logins waits for itself."""
    monkeypatch.setattr(secrets, "WAITING_MAX", 2)

    async def scenario() -> None:
        checker = Secrets()
        user = User(secrets=(hashed("a"),))
        found = await asyncio.gather(
            *(checker.check("ann", f"{n}", user) for n in range(5)), return_exceptions=True
        )
        assert sum(isinstance(each, Overloaded) for each in found) == 3
        assert not await checker.check("ann", "again", user)
        checker.close()

    asyncio.run(scenario())
