"""The responses of an S3-compatible store, and what they mean.

1. *One response has the mark, the ETag and the bytes*: no write can come between them.
2. *A failed condition is a definite answer*: nothing was written; read again. Unless botocore has retried the
   request: then the first attempt may have taken effect.
3. *A write without a response, or with a 5xx, may be done*: `OutcomeUnknown`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote

from botocore.exceptions import (  # type: ignore[import-untyped]
    ClientError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.exceptions import ConnectionError as UnreachedError

from fencehold.errors import Damaged, OutcomeUnknown, PermissionDenied, Unavailable, Unsupported, UsageError

FENCE, NAME, DRAW, EMPTY = "fence", "fence-name", "fence-draw", "fence-empty"
"""The guard's own metadata."""
OWN = frozenset((FENCE, NAME, DRAW, EMPTY))
KEPT = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType")
"""Attributes that are copied when a guard rewrites an object for its mark."""


UNANSWERED = (HTTPClientError, UnreachedError, IncompleteReadError)


class Seen(NamedTuple):
    """An object as it was at one moment."""

    etag: str = ""
    """Empty: there is none."""
    mark: int | None = None
    """None: it was not written by a guard."""
    name: str = ""
    draw: str = ""
    is_empty: bool = True
    """Whether only the mark is there, and nothing was put yet."""
    length: int = 0
    headers: Mapping[str, Any] = {}
    data: bytes = b""


class Missing(Exception):
    """There is no such object."""


class ConditionFailed(Exception):
    """Another writer wrote meanwhile."""

    def __init__(self, is_repeated: bool) -> None:
        self.is_repeated = is_repeated
        """Whether the same request was sent before, and may have been done then."""


def seen_of(answer: Mapping[str, Any], place: str, data: bytes = b"") -> Seen:
    """The object in a response to HEAD or GET.

    Raises:
        Damaged: there is something in the place of the mark that is none.
    """
    said: Mapping[str, str] = answer.get("Metadata", {})
    headers = {key: answer[key] for key in KEPT if answer.get(key)}
    headers["Metadata"] = {key: value for key, value in said.items() if key not in OWN}
    etag, length, mark = answer["ETag"], int(answer["ContentLength"]), said.get(FENCE)
    if mark is None:
        return Seen(etag, is_empty=False, length=length, headers=headers, data=data)
    # It belongs to the guard's form, and not to the body.
    headers.pop("ContentEncoding", None)
    if not (mark.isascii() and mark.isdigit() and said.get(NAME)):
        raise Damaged(f"the mark of {place} is {mark!r}, of {said.get(NAME)!r}: that is none. Nothing was written")
    is_empty = EMPTY in said
    return Seen(etag, int(mark), unquote(said[NAME]), said.get(DRAW, ""), is_empty, length, headers, data)


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Reading: if it fails, nothing happened.

    Raises:
        Missing: there is no such object.
    """
    try:
        yield
    except UNANSWERED as error:
        raise Unavailable(f"{place} was not read: {error}") from error
    except ClientError as error:
        if _status(error) == 404:
            _refuse_bucket(error)
            raise Missing(place) from error
        if _status(error) >= 500:
            raise Unavailable(f"{place} was not read: {error}") from error
        _refuse(error, place)
        raise


@contextmanager
def writing(place: str) -> Iterator[None]:
    """Writing under a condition.

    Raises:
        ConditionFailed: it is no longer true.
    """
    try:
        yield
    except UNANSWERED as error:
        raise OutcomeUnknown(f"{place} may have been written: {error}") from error
    except ClientError as error:
        status = _status(error)
        if status in (404, 409, 412):
            _refuse_bucket(error)
            raise ConditionFailed(error.response["ResponseMetadata"].get("RetryAttempts", 0) > 0) from error
        if status == 501:
            raise Unsupported(f"the store has no conditional writes, so it cannot be guarded: {error}") from error
        if status >= 500:
            raise OutcomeUnknown(f"{place} may have been written: {error}") from error
        _refuse(error, place)
        raise


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _refuse_bucket(error: ClientError) -> None:
    if error.response["Error"].get("Code") == "NoSuchBucket":
        raise UsageError(f"there is no such bucket: {error}") from error


def _refuse(error: ClientError, place: str) -> None:
    if _status(error) == 403:
        hint = "s3:GetObject, s3:PutObject and s3:ListBucket are needed"
        raise PermissionDenied(f"{place}: {hint} ({error})") from error
