"""The two headers that carry a fence, written by `http_client` and read by `http`.

1. `Fencehold-Name` is the name in UTF-8, percent-encoded: a header carries neither every letter nor a line break.
2. `Fencehold-Fence` is the fence in decimal digits, with no sign, space or zero before it.
3. Both or none. One alone, one that comes twice, or one that is written otherwise is malformed: to guess what was
   meant would be to pass silently.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from fencehold.errors import UsageError
from fencehold.guards.offer import FENCE_MAX, NAME_BYTES_MAX, Offer

NAME_HEADER = "Fencehold-Name"
FENCE_HEADER = "Fencehold-Fence"

_NAME = re.compile(r"(?:[!-$&-~]|%[0-9A-Fa-f]{2})+")
"""Printable ASCII, and percent-encoded bytes."""
_FENCE = re.compile(r"[1-9][0-9]{0,18}")
_SAFE = "!#$&'()*+,/:;=?@[]^`{|}~"
"""Left as they are, so that people can read the name; `%`, quotes and spaces are not."""


def written(offer: Offer) -> dict[str, str]:
    """The headers for an offer."""
    return {NAME_HEADER: quote(offer.name, safe=_SAFE), FENCE_HEADER: str(offer.fence)}


def read(headers: Iterable[tuple[bytes, bytes]]) -> Offer | None:
    """The offer in the headers of a request, as ASGI gives them; None if there is none.

    Raises:
        UsageError: it is malformed; the message says how.
    """
    names, fences = [], []
    for key, value in headers:
        if key.lower() == NAME_HEADER.lower().encode():
            names.append(value)
        elif key.lower() == FENCE_HEADER.lower().encode():
            fences.append(value)
    if not names and not fences:
        return None
    if len(names) != 1 or len(fences) != 1:
        raise UsageError(
            f"{NAME_HEADER} and {FENCE_HEADER} are sent once each, not {len(names)} and {len(fences)} times"
        )
    return Offer(_name(names[0]), _fence(fences[0])).checked()


def _name(value: bytes) -> str:
    text = value.decode("latin-1")
    # Longer than any percent-encoded name can be: not even parsed.
    if len(text) > 3 * NAME_BYTES_MAX or not _NAME.fullmatch(text):
        raise UsageError(
            f"{NAME_HEADER} is a name of 1 to {NAME_BYTES_MAX} bytes of UTF-8, percent-encoded, not {_shown(text)}"
        )
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise UsageError(f"{NAME_HEADER} is percent-encoded UTF-8, which {_shown(text)} is not") from None


def _fence(value: bytes) -> int:
    text = value.decode("latin-1")
    if not _FENCE.fullmatch(text) or int(text) > FENCE_MAX:
        raise UsageError(f"{FENCE_HEADER} is a whole number from 1 to 2^63 - 1 in digits, not {_shown(text)}")
    return int(text)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}…"
