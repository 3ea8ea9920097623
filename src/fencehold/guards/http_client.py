"""Sending a fence with a request, and detecting that it was refused: the client side of `http`.

1. *Nothing is sent without a hold that can be trusted*: no hold, a claim, or one that is lost or released raises
   before the first byte. That it is trusted now does not mean that it is when the request arrives: the other side
   checks that, by the fence.
2. One object serves httpx, with and without `await`, and requests: both take something to be called with each
   request before it is sent. So nothing of theirs is imported here.
3. A 412 that says "stale fence" is raised as `StaleFence`; any other 412 is not ours.
"""

import json
import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol, TypeVar

from fencehold.errors import StaleFence, UsageError
from fencehold.guards.http_headers import written
from fencehold.guards.http_problems import CONTENT_TYPE, STALE
from fencehold.guards.offer import Offered, offer_of
from fencehold.locks.hold import Claiming, current_hold
from fencehold.locks.traces import noted

_DIGITS = re.compile("[0-9]{1,19}")


class Response(Protocol):
    """An answer of httpx or requests, read to its end."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def text(self) -> str: ...


Asked = TypeVar("Asked")
"""A request of httpx or requests: each declares its headers in its own way."""


class FenceAuth:
    """Puts the fence on each request: `httpx.AsyncClient(auth=FenceAuth())`, `requests.post(…, auth=FenceAuth())`.

    Where `auth` is taken already, by a password or a token, give each request `headers=fence_headers()`.
    """

    def __init__(self, hold: Offered | None = None, *, name: str | None = None) -> None:
        """`hold`: None means the current hold at the time of each request.

        `name`: which of its names is meant, if it has several.
        """
        self._hold = hold
        self._name = name

    def __call__(self, request: Asked) -> Asked:
        """Called with each request, before it is sent. Raises as `fence_headers`."""
        headers: MutableMapping[str, str] = request.headers  # type: ignore[attr-defined]
        headers.update(fence_headers(self._hold, name=self._name))
        return request


def fence_headers(hold: Offered | None = None, *, name: str | None = None) -> dict[str, str]:
    """The headers with the fence of a hold, or of the current one.

    Raises:
        UsageError: there is no hold here, or it has no fence, or none of that name.
        HoldLost: it is lost: stop the work.
        NotOwner: it was released.
    """
    offered = current_hold() if hold is None else hold
    if offered is None:
        raise UsageError("there is no hold here: send inside `with client.lock(…)`, or give FenceAuth the hold")
    offer = offer_of(offered, name)
    if isinstance(offered, Claiming):
        offered.check()
    return written(offer)


def raise_for_stale(response: Response) -> None:
    """Raise if the other side refused the fence. Call it before `raise_for_status`.

    Raises:
        StaleFence: it has seen a greater one; nothing was written.
    """
    if response.status_code != 412:
        return
    if response.headers.get("content-type", "").partition(";")[0].strip().lower() != CONTENT_TYPE:
        return
    said = _said(response.text)
    if said.get("type") == STALE:
        raise noted(
            StaleFence(
                str(said.get("detail", "")),
                name=str(said.get("name", "")),
                fence=_number(said.get("fence")),
                mark=_number(said.get("mark")),
            )
        )


def _said(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _number(value: object) -> int:
    """A fence as another implementation may write it: a number, or digits; 0 if there is none."""
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else 0
