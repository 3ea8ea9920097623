"""The answers to refused requests: `application/problem+json` (RFC 9457), the same from every server.

=============== ====== ==================================================================================
type            status what it means
=============== ====== ==================================================================================
stale-fence     412    another has held the name since: stop the work. Also: `name`, `fence`, `mark`
no-fence        428    the request must say a fence, and says none
malformed-fence 400    the headers cannot be read, or say the fence of another name than the one asked for
unknown-name    400    the store of marks is strict, and does not know the name
no-mark         503    the marks could not be asked; nothing reached the application: try again later
=============== ====== ==================================================================================
"""

import json
from typing import Any, NamedTuple

from fencehold.errors import StaleFence

CONTENT_TYPE = "application/problem+json"
PREFIX = "urn:fencehold:problem:"
STALE = f"{PREFIX}stale-fence"
MISSING = f"{PREFIX}no-fence"
MALFORMED = f"{PREFIX}malformed-fence"
UNKNOWN = f"{PREFIX}unknown-name"
UNAVAILABLE = f"{PREFIX}no-mark"


class Problem(NamedTuple):
    """One answer."""

    type: str
    title: str
    status: int
    detail: str
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @property
    def body(self) -> bytes:
        said = {"type": self.type, "title": self.title, "status": self.status, "detail": self.detail, **self.more}
        return json.dumps(said, ensure_ascii=False).encode()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """As ASGI takes them. No cache may keep a refusal: with another fence the same request passes."""
        return [
            (b"content-type", CONTENT_TYPE.encode()),
            (b"content-length", str(len(self.body)).encode()),
            (b"cache-control", b"no-store"),
        ]


def stale(error: StaleFence) -> Problem:
    """The answer to a stale holder: also for an application whose own guard has refused it."""
    more = {"name": error.name, "fence": error.fence, "mark": error.mark}
    return Problem(STALE, "The fence is stale", 412, str(error), more)


def missing(names: tuple[str, str]) -> Problem:
    """The answer to a request without a fence."""
    return Problem(MISSING, "A fence is required", 428, f"send the headers {names[0]} and {names[1]}")


def malformed(detail: str) -> Problem:
    """The answer to a request whose fence cannot be read, or belongs to another name."""
    return Problem(MALFORMED, "The fence cannot be used", 400, detail)


def unknown_name(detail: str) -> Problem:
    """The answer for a name that a strict store does not know."""
    return Problem(UNKNOWN, "The name is not known", 400, detail)


def unavailable() -> Problem:
    """The answer while the marks cannot be read. The reason goes to the log, not to the caller."""
    return Problem(UNAVAILABLE, "The marks cannot be asked", 503, "nothing was done; try again later")
