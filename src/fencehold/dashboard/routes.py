"""The routes of the dashboard on the HTTP listener: its pages, their data, and streams that keep them current.

1. Nothing is loaded from elsewhere: the policy of every page allows scripts, styles and requests of this
   listener, nothing inline, and no frames.
2. Requests of pages are answered by the picture of the login that is signed in. `/dashboard/api/v1/…` is the
   interface for scripts, `/v1/…`, for that login: read-only.
3. A stream sends a whole view, each time with its position: a page that reconnects after a break lost nothing.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fencehold.dashboard import views
from fencehold.dashboard.graph import graph
from fencehold.dashboard.paths import AnythingMount
from fencehold.dashboard.pictures import Pictures
from fencehold.dashboard.reader import Reader
from fencehold.dashboard.roll import SORTS, Wanted
from fencehold.dashboard.visits import Visit, Visits, set_cookie
from fencehold.errors import FenceholdError, PermissionDenied, UsageError
from fencehold.gateway.bodies import json_object
from fencehold.gateway.credentials import ANONYMOUS, TOKEN_USER, Credentials
from fencehold.gateway.problems import Unauthenticated, problem_of
from fencehold.gateway.questions import Questions
from fencehold.gateway.upstream import Upstream
from fencehold.types import CORRECTNESS, EFFICIENCY, Tier

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
LIVE_S = 0.3
"""How often a stream sends its view, at most."""
TICK_S = 1.0
ROWS_MAX = 200
_COMMENT_S = 15.0
_SILENCE_S = 1.5
"""How long a view may take before the waiting page is told that the service is silent."""
_SILENT = "the service has not answered yet"
_BODY_BYTES_MAX = 16_384
_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}

Problem = Callable[[Exception], Response]
View = Callable[[Reader, Request], Awaitable[dict[str, Any]]]


class Dashboard:
    """What the HTTP listener mounts."""

    def __init__(self, upstream: Upstream, questions: Questions, problem: Problem, trace_url: str = "") -> None:
        self._upstream = upstream
        self._pictures = Pictures(questions)
        self._visits = Visits()
        self._problem = problem
        self._trace_url = trace_url
        self._files = _read_files()
        self._views: dict[str, View] = {
            "overview": _overview,
            "names": _names,
            "name": _name,
            "sessions": _sessions,
            "session": _session,
            "graph": _graph,
        }

    def start(self) -> None:
        """Begin to sample figures for the charts."""
        self._pictures.start()

    async def close(self) -> None:
        """End what is kept for open pages."""
        await self._pictures.close()

    def mount(self, api: ASGIApp) -> Mount:
        """The routes, with the application that answers `/v1`."""

        def route(path: str, handle: Callable[[Request], Awaitable[Response]], *methods: str) -> Route:
            return Route(path, self._guarded(handle), methods=methods or ["GET"])

        return AnythingMount(
            "/dashboard",
            routes=[
                route("/api/session", self._who),
                route("/api/sign-in", self._sign_in, "POST"),
                route("/api/sign-out", self._sign_out, "POST"),
                route("/api/break", self._break, "POST"),
                route("/api/view/{view}", self._view),
                route("/api/live/{view}", self._live),
                Route("/api/v1/{path:anything}", _ForLogin(api, self._visits), methods=["GET"]),
                route("/static/{path:path}", self._static),
                route("/{path:path}", self._page),
            ],
        )

    def _guarded(self, handle: Callable[[Request], Awaitable[Response]]) -> Any:
        async def endpoint(request: Request) -> Response:
            try:
                response = await handle(request)
            except Exception as error:
                response = self._problem(error)
                # The page has its own sign-in: the browser's dialogue would be in its way.
                if "www-authenticate" in response.headers:
                    del response.headers["www-authenticate"]
            for key, value in HEADERS.items():
                response.headers.setdefault(key, value)
            response.headers.setdefault("cache-control", "no-store")
            return response

        return endpoint

    # Pages.

    async def _page(self, _: Request) -> Response:
        return Response(self._files["index.html"], media_type="text/html", headers={"cache-control": "no-cache"})

    async def _static(self, request: Request) -> Response:
        path = request.path_params["path"]
        data = self._files.get(path)
        if data is None:
            return Response("there is no such file", 404, media_type="text/plain")
        media = _TYPES.get(path.rpartition(".")[2], "application/octet-stream")
        return Response(data, media_type=media, headers={"cache-control": "no-cache"})

    # Signing in and out.

    async def _who(self, request: Request) -> Response:
        visit = self._visits.of(request)
        reader = await self._reader(visit, CORRECTNESS)
        return JSONResponse(await self._told(visit, reader))

    async def _told(self, visit: Visit, reader: Reader) -> dict[str, Any]:
        picture = reader.picture
        return {
            "principal": picture.principal,
            "roles": picture.roles,
            "is_signed_in": visit.credentials != ANONYMOUS,
            "is_by_certificate": visit.credentials.is_vouched,
            "token": visit.token,
            "trace_url": self._trace_url,
            "version": picture.facts.get("fencehold_version", ""),
            "tier": reader.tier.name.lower(),
        }

    async def _sign_in(self, request: Request) -> Response:
        said = await json_object(request.stream(), _BODY_BYTES_MAX)
        user, secret = said.get("user", ""), said.get("secret", "")
        if not isinstance(user, str) or not isinstance(secret, str) or not secret:
            raise UsageError("give a user and its secret, or a token")
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise PermissionDenied("sign in on the page of the dashboard itself")
        credentials = Credentials(user or TOKEN_USER, secret)
        reader = await self._pictures.of(credentials, CORRECTNESS)
        visit = self._visits.begin(credentials)
        response = JSONResponse(await self._told(visit, reader))
        set_cookie(request, response, visit)
        return response

    async def _sign_out(self, request: Request) -> Response:
        visit = self._visits.of(request)
        self._visits.check(request, visit)
        if self._visits.end(visit) and visit.cookie:
            self._pictures.forget(visit.credentials)
        response = Response(status_code=204)
        set_cookie(request, response, None)
        return response

    async def _reader(self, visit: Visit, tier: Tier) -> Reader:
        return await self._pictures.of(visit.credentials, tier)

    # Data of pages.

    async def _view(self, request: Request) -> Response:
        reader = await self._reader(self._visits.of(request), _tier(request))
        told = await self._view_of(request)(reader, request)
        return JSONResponse({"now_ms": views.now_ms(), "view": told})

    async def _break(self, request: Request) -> Response:
        visit = self._visits.of(request)
        self._visits.check(request, visit)
        said = await json_object(request.stream(), _BODY_BYTES_MAX)
        name, fence = said.get("name"), said.get("fence", 0)
        if not isinstance(name, str) or not name or not isinstance(fence, int):
            raise UsageError("name and fence must be given")
        shared = await self._upstream.shared(visit.credentials)
        tier = EFFICIENCY if said.get("tier") == "efficiency" else CORRECTNESS
        return JSONResponse({"fence": await shared.client.break_hold(name, fence=fence, tier=tier)})

    async def _live(self, request: Request) -> Response:
        visit, view = self._visits.of(request), self._view_of(request)
        # What is wrong is sent as an error response, not in the middle of a stream.
        await self._reader(visit, _tier(request))
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        stream = self._streamed(request, visit, view)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _streamed(self, request: Request, visit: Visit, view: View) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        sent, sent_at = "", loop.time()
        while True:
            started = loop.time()
            try:
                if self._visits.of(request).credentials != visit.credentials:
                    raise Unauthenticated("the visit is over: sign in again")
                reader = await self._reader(visit, _tier(request))
                picture = reader.picture
                version = picture.version
                asked = asyncio.ensure_future(view(reader, request))
                try:
                    while not (await asyncio.wait({asked}, timeout=_SILENCE_S))[0]:
                        # A page opened while the service is silent is told so, long before the timeout.
                        yield f"event: trouble\ndata: {json.dumps(_SILENT)}\n\n"
                    told = asked.result()
                finally:
                    asked.cancel()
            except Unauthenticated as over:
                yield f"event: over\ndata: {json.dumps(str(over))}\n\n"
                return
            except (PermissionDenied, UsageError) as wrong:
                if isinstance(wrong, PermissionDenied) and not await reader.is_known():
                    yield f"event: over\ndata: {json.dumps(str(wrong))}\n\n"
                    return
                known = problem_of(wrong)
                said = {"status": known.http, "reason": known.reason, "detail": str(wrong)}
                yield f"event: problem\ndata: {json.dumps(said)}\n\n"
                return
            except FenceholdError as away:
                yield f"event: trouble\ndata: {json.dumps(str(away))}\n\n"
                await asyncio.sleep(TICK_S)
                continue
            data = json.dumps(told, separators=(",", ":"))
            if data != sent:
                yield f'id: {picture.position}\ndata: {{"now_ms":{views.now_ms()},"view":{data}}}\n\n'
                sent, sent_at = data, started
            elif started - sent_at > _COMMENT_S:
                yield ": nothing changed\n\n"
                sent_at = started
            await asyncio.sleep(max(LIVE_S, 2 * (loop.time() - started)))
            await picture.changed(version, TICK_S)

    def _view_of(self, request: Request) -> View:
        view = self._views.get(request.path_params["view"])
        if view is None:
            raise UsageError(f"views are {', '.join(self._views)}")
        return view


class _ForLogin:
    """The interface for scripts, for the login that is signed in."""

    def __init__(self, api: ASGIApp, visits: Visits) -> None:
        self._api, self._visits = api, visits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        credentials = self._visits.of(Request(scope)).credentials
        path = "/v1/" + scope["path_params"]["path"]
        headers = [(key, value) for key, value in scope["headers"] if key not in (b"authorization", b"cookie")]
        # The principal of a certificate is found there by the same certificate.
        if credentials.secret:
            headers.append((b"authorization", _authorization(credentials)))
        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": "", "headers": headers}
        for key in ("path_params", "endpoint", "route"):
            inner.pop(key, None)
        await self._api(inner, receive, send)


def _authorization(credentials: Credentials) -> bytes:
    if credentials.user == TOKEN_USER:
        return b"Bearer " + credentials.secret.encode()
    return b"Basic " + base64.b64encode(f"{credentials.user}:{credentials.secret}".encode())


async def _overview(reader: Reader, request: Request) -> dict[str, Any]:
    span_s = max(90, _number(request, "span_s", 300))
    picture = reader.picture
    told: dict[str, Any] = picture.view(("overview", span_s), lambda: views.overview(picture, span_s))
    return told


async def _names(reader: Reader, request: Request) -> dict[str, Any]:
    query, picture = request.query_params, reader.picture
    client = query.get("client", "")
    wanted = Wanted(
        query.get("q", ""),
        query.get("prefix", ""),
        picture.sessions_like(client) if client else None,
        query.get("state", ""),
        query.get("sort", "age"),
        query.get("reversed", "") == "1",
    )
    if wanted.sort not in SORTS:
        raise UsageError(f"sort is one of {', '.join(SORTS)}")
    offset, count = _number(request, "offset", 0), min(_number(request, "count", 60), ROWS_MAX)
    page = picture.roll.page(wanted, offset, count)
    await reader.complete([row.name for row in page.rows if not row.is_whole])
    return views.names(picture, wanted, offset, count)


async def _name(reader: Reader, request: Request) -> dict[str, Any]:
    name = request.query_params.get("name", "")
    if not name:
        raise UsageError("name must not be empty")
    picture = reader.picture
    seen = await reader.look(name)
    row = picture.roll.get(name)
    told = views.name(picture, seen, reader.home_of(name) if row is None else row.shard)
    allowed = await reader.ask("CAN", picture.principal, "break", name)
    return {**told, "may_break": bool(allowed[b"allowed"])}


async def _sessions(reader: Reader, request: Request) -> dict[str, Any]:
    query = request.query_params
    offset, count = _number(request, "offset", 0), min(_number(request, "count", 60), ROWS_MAX)
    return views.sessions(reader.picture, query.get("q", ""), query.get("sort", ""), offset, count)


async def _session(reader: Reader, request: Request) -> dict[str, Any]:
    return views.session(reader.picture, _number(request, "session", 0))


async def _graph(reader: Reader, _: Request) -> dict[str, Any]:
    told: dict[str, Any] = reader.picture.view("graph", lambda: graph(reader.picture))
    return told


def _number(request: Request, key: str, default: int) -> int:
    said = request.query_params.get(key, "")
    return int(said) if said.isdecimal() and len(said) < 17 else default


def _tier(request: Request) -> Tier:
    return EFFICIENCY if request.query_params.get("tier") == "efficiency" else CORRECTNESS


def _read_files() -> dict[str, bytes]:
    """All that a page loads, read once: no other file can be requested by its path."""
    found: dict[str, bytes] = {}
    folders = [("", files("fencehold.dashboard") / "static")]
    while folders:
        prefix, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
            else:
                found[prefix + entry.name] = entry.read_bytes()
    return found
