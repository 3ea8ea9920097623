"""Ids that cannot be guessed: the only source of randomness."""

import secrets
from collections.abc import Callable

Secrets = Callable[[], str]
"""Makes a secret that a client must present to resume its session."""


def new_secret() -> str:
    """128 bits, in characters that are safe everywhere."""
    return secrets.token_urlsafe(16)
