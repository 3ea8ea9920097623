"""Tokens: what a script needs to release, from any process, a hold that another of its processes acquired.

A token is a secret: anyone who has it can release the hold. Only `acquire` prints one.
"""

import base64
import binascii
import json
from typing import NamedTuple

from fencehold.errors import UsageError

_VERSION = "fh1."


class Token(NamedTuple):
    """A session, the secret that proves it, and what it holds."""

    session: int
    secret: str
    fence: int
    name: str
    tier: str = ""
    """The tier of the session, if one was given, so that `release` needs no option for it."""
    shard: int | None = None
    """The shard of the session, where there are several: the name may have moved to another since."""

    def __repr__(self) -> str:
        """Without the secret: a token may appear in a traceback or a log."""
        return f"Token(session={self.session}, fence={self.fence}, name={self.name!r})"

    def encode(self) -> str:
        """As one word, safe in any shell."""
        parts = tuple(self) if self.shard is not None else tuple(self)[:-1] if self.tier else tuple(self)[:-2]
        packed = json.dumps(parts, separators=(",", ":")).encode()
        return _VERSION + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode(text: str) -> Token:
    """Read what `encode` wrote."""
    body = text.strip().removeprefix(_VERSION)
    try:
        session, secret, fence, name, *more = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        tier = more[0] if more else ""
        shard = more[1] if len(more) > 1 else None
        held = int(session), str(secret), int(fence), str(name)
        return Token(*held, str(tier), None if shard is None else int(shard))
    except (ValueError, TypeError, binascii.Error):
        raise UsageError("that is not a token: it is what `fencehold acquire` printed, whole") from None
