"""Visits: the users signed in at this listener's dashboard, protected from requests forged in their name.

1. A visit is a cookie that scripts cannot read and other sites cannot send (HttpOnly, SameSite=Strict), for the
   dashboard's paths only. The credentials stay in this process; they are never sent to the browser again.
2. A change needs the token of the visit in a header, too, which no other site can read or set.
3. A browser that shows a certificate, and has not signed in, is the principal it names, for as long as it is
   shown. A browser sends it with requests of any site, so this visit has a token, too: the same for all windows of
   that user.
4. A visit ends `IDLE_S` after it was last used, `LASTS_S` after it began, or with the process. Their number is
   bounded; the least recently used one ends first.
"""

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from fencehold.errors import PermissionDenied
from fencehold.gateway.credentials import ANONYMOUS, Credentials, read_authorization, shown_in

VISITS_MAX = 1_000
IDLE_S, LASTS_S = 3_600.0, 43_200.0
TOKEN_HEADER = "x-fencehold-token"
PATH = "/dashboard"


@dataclass(slots=True)
class Visit:
    """A signed-in user; or an anonymous one, who needs no cookie."""

    credentials: Credentials
    token: str
    """The token that changes must carry."""
    began_at: float = 0.0
    used_at: float = 0.0
    cookie: str = ""


class Visits:
    """All visits of this process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._visits: OrderedDict[str, Visit] = OrderedDict()
        self._nobody = Visit(ANONYMOUS, secrets.token_urlsafe(24))
        self._key = secrets.token_bytes(32)

    def begin(self, credentials: Credentials) -> Visit:
        """A user has signed in."""
        while len(self._visits) >= VISITS_MAX:
            self._visits.popitem(last=False)
        now = self._now()
        cookie = secrets.token_urlsafe(24)
        visit = Visit(credentials, secrets.token_urlsafe(24), now, now, cookie)
        self._visits[cookie] = visit
        return visit

    def of(self, request: Request) -> Visit:
        """The visit of a request: by an Authorization header, as from scripts, by the cookie, or by a
        certificate."""
        said = request.headers.get("authorization", "")
        if said:
            return Visit(read_authorization(said), secrets.token_urlsafe(24))
        visit = self._signed_in(request.cookies.get(_cookie_name(request), ""))
        return visit or self._shown(shown_in(request.scope))

    def _signed_in(self, cookie: str) -> Visit | None:
        visit = self._visits.get(cookie)
        if visit is None:
            return None
        now = self._now()
        if now - visit.used_at > IDLE_S or now - visit.began_at > LASTS_S:
            del self._visits[cookie]
            return None
        visit.used_at = now
        self._visits.move_to_end(cookie)
        return visit

    def _shown(self, credentials: Credentials) -> Visit:
        if credentials == ANONYMOUS:
            return self._nobody
        # Nothing is kept for it: certificates can be many, and each always gives the same token.
        return Visit(credentials, hmac.digest(self._key, credentials.user.encode(), "sha256").hex())

    def check(self, request: Request, visit: Visit) -> None:
        """Check that a change was requested by the dashboard, and not by another site in the user's browser.

        Raises:
            PermissionDenied: that is not certain.
        """
        site = request.headers.get("sec-fetch-site", "same-origin")
        said = request.headers.get(TOKEN_HEADER, "")
        if site != "same-origin" or not hmac.compare_digest(said.encode(), visit.token.encode()):
            raise PermissionDenied("this did not come from the dashboard, or the visit is over: reload the page")

    def end(self, visit: Visit) -> bool:
        """A user signs out. Returns whether no other visit has the same login."""
        self._visits.pop(visit.cookie, None)
        return all(other.credentials != visit.credentials for other in self._visits.values())


def set_cookie(request: Request, response: Response, visit: Visit | None) -> None:
    """Give the browser its cookie; None: take it away."""
    is_tls = request.url.scheme == "https"
    if visit is None:
        response.delete_cookie(_cookie_name(request), PATH, secure=is_tls, httponly=True, samesite="strict")
        return
    response.set_cookie(
        _cookie_name(request),
        visit.cookie,
        max_age=int(LASTS_S),
        path=PATH,
        secure=is_tls,
        httponly=True,
        samesite="strict",
    )


def _cookie_name(request: Request) -> str:
    # Cookies do not distinguish ports: three listeners on one machine must not end each other's visits.
    return f"fencehold_{request.url.port or 0}"
