"""What an open web page may not do: send requests to a listener on the same machine in the user's name.

1. A request that a page of another origin sends is refused: browsers say so by `Origin`, programs send none.
2. A listener on loopback answers to loopback names only: a page whose own name resolves to 127.0.0.1 (DNS
   rebinding) sends that name as the host.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from fencehold.drivers.address import is_loopback

Application = Callable[[Any, Any, Any], Awaitable[None]]


class SameSite:
    """An application that only permitted requests reach."""

    def __init__(self, application: Application, host: str) -> None:
        self._application = application
        self._is_loopback = is_loopback(host)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.partition("://")[2] != host:
            await _refuse(send, 403, "a page of another origin may not ask this", f"Origin {origin} is not {host}")
        elif self._is_loopback and not is_loopback(_name(host)):
            detail = f"Host {host} does not mean this machine: use 127.0.0.1 or localhost"
            await _refuse(send, 421, "this listener is for its own machine", detail)
        else:
            await self._application(scope, receive, send)


def _name(host: str) -> str:
    """A host without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).strip("[]")


async def _refuse(send: Any, status: int, title: str, detail: str) -> None:
    told = {"type": "about:blank", "title": title, "status": status, "detail": detail, "reason": "DENIED"}
    body = json.dumps(told).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
