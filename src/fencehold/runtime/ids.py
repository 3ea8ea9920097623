"""Ids that nobody can guess: the one door to randomness."""

import secrets
from collections.abc import Callable

Secrets = Callable[[], str]
"""Makes a secret that a client must show to take its session up again."""


def new_secret() -> str:
    """128 bits, in words that fit anywhere."""
    return secrets.token_urlsafe(16)
