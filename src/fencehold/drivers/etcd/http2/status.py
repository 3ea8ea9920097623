"""How calls end: in gRPC's words, and whether the request may have been seen."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from fencehold.drivers.http2.codes import Code


class Status(NamedTuple):
    """How a stream ended."""

    code: Code
    details: str = ""
    is_sent: bool = True
    """Whether the peer may have seen the request."""


class CallFailed(Exception):
    """A call that was not answered, or answered with an error."""

    def __init__(self, code: Code, details: str = "", *, is_sent: bool = True) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details
        self.is_sent = is_sent
        """Whether the request may have been seen; if not, certainly nothing happened."""


def failed(status: Status) -> CallFailed:
    """The error that a status is."""
    return CallFailed(status.code, status.details, is_sent=status.is_sent)


_CODES = {str(code.value): code for code in Code}
_BY_HTTP = {
    "400": Code.INTERNAL,
    "401": Code.UNAUTHENTICATED,
    "403": Code.PERMISSION_DENIED,
    "404": Code.UNIMPLEMENTED,
    "429": Code.UNAVAILABLE,
    "502": Code.UNAVAILABLE,
    "503": Code.UNAVAILABLE,
    "504": Code.UNAVAILABLE,
}
"""As gRPC has it (doc/http-grpc-status-mapping.md); any other is unknown."""


def status_in(headers: Mapping[str, str]) -> Status:
    """What the last headers of a stream say, or the only ones of one that is not gRPC."""
    number = headers.get("grpc-status")
    if number is not None:
        code = _CODES.get(number)
        words = unquote(headers.get("grpc-message", ""))
        return (
            Status(Code.UNKNOWN, words or f"its status is {number[:9]!r}") if code is None else Status(code, words)
        )
    http = headers.get(":status", "200")
    if http == "200":
        return Status(Code.UNKNOWN, "it ended without a status")
    return Status(_BY_HTTP.get(http, Code.UNKNOWN), f"HTTP {http[:3]} instead of an answer")
