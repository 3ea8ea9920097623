"""Bearer tokens of services: random, kept as hashes; here those in a file of one node, beside those of the policy.

1. A token has 256 random bits, so a plain hash keeps it: there is nothing to be guessed.
2. The file has a line for each: the principal, `sha256:` and the hash in hexadecimal, and when it expires, if so.
   Any other line is refused when the file is read, except comments, which begin with #.
3. It is read again when it changes; clients whose token was removed are disconnected. While it cannot be read, or
   is wrong, the last valid content applies.
4. Every token of the file is compared, also after one matches, and each in constant time.
"""

import hashlib
import hmac
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from fencehold.drivers.tls import stamp_of
from fencehold.errors import PermissionDenied, UsageError
from fencehold.security.certificates import check_principal

PREFIX = "fht_"
"""The prefix of each, so that leaked ones are found by secret scanners."""
TOKENS_MAX = 4_096
_FILE_BYTES_MAX = 1 << 20
TOKEN_BYTES_MAX = 256


class Line(NamedTuple):
    """One token, as stored."""

    principal: str
    digest: str
    expires_at: datetime | None = None

    def __str__(self) -> str:
        expiry = "" if self.expires_at is None else f" {self.expires_at:%Y-%m-%dT%H:%M:%SZ}"
        return f"{self.principal} sha256:{self.digest}{expiry}"


def new_token() -> str:
    """A token that cannot be guessed."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def read(path: Path) -> tuple[Line, ...]:
    """Read a file of tokens.

    Raises:
        UsageError: it cannot be read, or a line is wrong; no part of a token is in the message.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read tokens from {path}: {reason}") from None
    said = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
    lines = tuple(_line(path, number, words) for number, words in said if words and not words[0].startswith("#"))
    if len(text) > _FILE_BYTES_MAX or len(lines) > TOKENS_MAX:
        raise UsageError(f"{path} has more than {TOKENS_MAX} tokens, or {_FILE_BYTES_MAX} bytes")
    return lines


def _line(path: Path, number: int, words: list[str]) -> Line:
    try:
        principal, digest, *rest = words
        kind, _, hexadecimal = digest.partition(":")
        if kind != "sha256" or len(bytes.fromhex(hexadecimal)) != 32 or len(rest) > 1:
            raise ValueError
        expires_at = datetime.strptime(rest[0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) if rest else None
        return Line(check_principal(principal), hexadecimal.lower(), expires_at)
    except (ValueError, PermissionDenied):
        form = "PRINCIPAL sha256:HASH [YYYY-MM-DDTHH:MM:SSZ]"
        raise UsageError(f"{path}, line {number}: a token is written {form}") from None


def add(path: Path, line: Line) -> None:
    """Add a token to a file, which is made for its owner alone if there is none.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"{line}\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


class Tokens:
    """The tokens of a file, as it is now."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            UsageError: as `read`.
        """
        self.path = path
        self._stamp = stamp_of(path)
        self._lines = read(path)

    def find(self, digest: str) -> Line | None:
        """The token with this hash; None if there is none, or it has expired."""
        self._refresh()
        now, found = datetime.now(UTC), None
        for line in self._lines:
            is_valid = line.expires_at is None or now < line.expires_at
            if hmac.compare_digest(line.digest, digest) and is_valid:
                found = line
        return found

    def digests(self) -> frozenset[str]:
        """The hashes of all that are in the file now."""
        self._refresh()
        return frozenset(line.digest for line in self._lines)

    def _refresh(self) -> None:
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return
        try:
            self._lines = read(self.path)
        except UsageError:
            # As with certificates: the last valid content applies until there is something better.
            return
        self._stamp = stamp
