"""Handlers: each operation of the table, carried out for a login. A hold lives by its ttl, not by a connection."""

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

from fencehold import Explanation, Holder, Waiting, __version__
from fencehold.doors.http import table
from fencehold.doors.http.event_stream import party, streamed
from fencehold.doors.http.requests import credentials_of, instant_ms, tier_of
from fencehold.errors import FenceholdError, LockTimeout, OutcomeUnknown, Unavailable, UsageError
from fencehold.gateway.holds import Held
from fencehold.gateway.lists import Lists, Page
from fencehold.gateway.questions import Questions
from fencehold.gateway.served_client import EXCLUSIVE, PERMIT, SHARED, Ask
from fencehold.gateway.shard_sight import shards_seen
from fencehold.gateway.upstream import SHARED_TTL_S, Upstream
from fencehold.locks.places import read_places
from fencehold.observe.page import MEDIA_TYPE, page
from fencehold.observe.sink_status import figures_of_sinks, usual_folder
from fencehold.types import CORRECTNESS

WAIT_MS_MAX = 300_000
"""Proxies let no request wait for longer."""
_PAGE_MAX, _PAGE = 1_000, 100
_MODES = {"exclusive": EXCLUSIVE, "shared": SHARED}
_MODE_WORDS = {EXCLUSIVE: "exclusive", SHARED: "shared", PERMIT: "permit"}

Said = dict[str, Any]
Result = TypeVar("Result")


class ClientGone(Exception):
    """The client has closed the connection; what it asked for is withdrawn."""


class Handlers:
    """Each method is a `handler` of the table."""

    def __init__(self, upstream: Upstream, questions: Questions) -> None:
        self._upstream = upstream
        self._questions = questions
        self.answered: Counter[tuple[str, int]] = Counter()
        """Requests by operation and status."""

    async def list_locks(self, request: Request, said: Said) -> Response:
        count = min(said.get("page_size", 0), _PAGE_MAX) or _PAGE
        lists = Lists(self._questions, credentials_of(request), tier_of(said))
        page = await lists.names(said.get("page_token") or "", count, said.get("prefix") or "")
        locks = [_lock(row) for row in page.items]
        return JSONResponse({"locks": locks, "next_page_token": page.cursor, **_stale(page)})

    async def explain(self, request: Request, said: Said) -> Response:
        shared = await self._upstream.shared(credentials_of(request))
        limit = min(said.get("limit", 0), _PAGE_MAX) or _PAGE
        seen = await shared.client.explain(request.path_params["name"], limit=limit, tier=tier_of(said))
        return JSONResponse(_explained(seen))

    async def acquire(self, request: Request, said: Said) -> Response:
        return await self._acquired(request, said, (request.path_params["name"],))

    async def acquire_several(self, request: Request, said: Said) -> Response:
        if not said["names"]:
            raise UsageError("names must not be empty")
        return await self._acquired(request, said, tuple(said["names"]), is_several=True)

    async def extend(self, request: Request, said: Said) -> Response:
        if not said["ttl_ms"]:
            raise UsageError("ttl_ms is missing: how long from now the hold may last")
        shared = await self._upstream.shared(credentials_of(request))
        held = await shared.extend(*_which(request, said), said["ttl_ms"])
        return JSONResponse({"hold": _held(held)})

    async def release(self, request: Request, said: Said) -> Response:
        shared = await self._upstream.shared(credentials_of(request))
        await shared.release(*_which(request, said))
        return Response(status_code=204)

    async def break_hold(self, request: Request, said: Said) -> Response:
        shared = await self._upstream.shared(credentials_of(request))
        name, fence = request.path_params["name"], said.get("fence", 0)
        return JSONResponse({"fence": await shared.client.break_hold(name, fence=fence, tier=tier_of(said))})

    async def list_sessions(self, request: Request, said: Said) -> Response:
        count = min(said.get("page_size", 0), _PAGE_MAX) or _PAGE
        lists = Lists(self._questions, credentials_of(request), tier_of(said))
        page = await lists.sessions(said.get("page_token") or 0, count)
        sessions = [_plain(row) for row in page.items]
        for session, shard in zip(sessions, page.shards, strict=False):
            session["shard"] = shard
        return JSONResponse({"sessions": sessions, "next_page_token": page.cursor or None, **_stale(page)})

    async def cluster(self, request: Request, _: Said) -> Response:
        credentials = credentials_of(request)
        told = _plain(await self._questions.ask(credentials, CORRECTNESS, "NODE.LIST"))
        if await self._questions.shards(credentials) > 1:
            told["by_shard"] = await shards_seen(self._questions, credentials)
        return JSONResponse(told)

    async def shards(self, request: Request, _: Said) -> Response:
        placed, leaders = await self._questions.shard_map(credentials_of(request))
        ranges = [{"first": each.first, "last": each.last, "shard": each.shard} for each in placed.ranges]
        told = {"version": placed.version, "shards": placed.shards, "ranges": ranges, "leaders": leaders}
        return JSONResponse(told)

    async def events(self, request: Request, said: Said) -> Response:
        credentials, after = credentials_of(request), request.headers.get("last-event-id", "")
        places = read_places(after, await self._questions.shards(credentials)) if after else {}
        told = self._questions.events(credentials, tier_of(said), said.get("prefix", ""), places)
        # What is wrong is sent as an error response, not in the middle of a stream.
        begun = await anext(told)
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        return StreamingResponse(streamed(begun, told), media_type="text/event-stream", headers=headers)

    async def history(self, request: Request, said: Said) -> Response:
        words: list[str | int] = ["LOCK.HISTORY", request.path_params["name"]]
        for option, key in (("AT", "at"), ("SINCE", "since"), ("UNTIL", "until")):
            words += [option, instant_ms(said[key], key)] if said.get(key) else []
        words += ["COUNT", min(said.get("limit", 0), _PAGE_MAX) or _PAGE]
        found = await self._questions.ask(credentials_of(request), CORRECTNESS, *words)
        return Response(found, media_type="application/json")

    async def metrics(self, request: Request, _: Said) -> Response:
        own = {"fencehold_http_requests_total": self._requests()}
        own |= await asyncio.to_thread(figures_of_sinks, usual_folder())
        try:
            found = json.loads(await self._questions.ask_here(credentials_of(request), "METRICS"))
            figures = {**found["looked_up"], **found["counted"], **own, "fencehold_up": [[[], 1]]}
        except (Unavailable, OutcomeUnknown):
            # `fencehold_up` reports it.
            figures = {**own, "fencehold_up": [[[], 0]]}
        return PlainTextResponse(page(figures), media_type=MEDIA_TYPE)

    def _requests(self) -> list[list[Any]]:
        return [[[operation, str(status)], count] for (operation, status), count in sorted(self.answered.items())]

    async def healthz(self, _request: Request, _: Said) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(self, _request: Request, _: Said) -> Response:
        roles = await self._questions.roles()
        role = next((word for word in ("leader", "standby") if word in roles.values()), "")
        return JSONResponse({"role": role or None, "nodes": roles}, 200 if role else 503)

    async def openapi(self, _request: Request, _: Said) -> Response:
        return JSONResponse(table.described(__version__))

    async def page(self, _request: Request, _: Said) -> Response:
        return HTMLResponse(table.page(__version__))

    async def _acquired(
        self, request: Request, said: Said, names: tuple[str, ...], *, is_several: bool = False
    ) -> Response:
        trace = request.headers.get("traceparent", "")
        if trace and "traceparent" not in (said.get("meta") or {}):
            said = {**said, "meta": {**(said.get("meta") or {}), "traceparent": trace[:64]}}
        ask = _ask(said, names, is_several)
        shared = await self._upstream.shared(credentials_of(request))
        held = await _unless_gone(request, shared.acquire(ask))
        if held is not None:
            return JSONResponse({"hold": _held(held)})
        seen: Explanation | None = None
        # Naming the holder is a courtesy: the answer is that it was not acquired.
        with suppress(FenceholdError):
            seen = await shared.client.explain(min(names), limit=3, tier=ask.tier)
        raise LockTimeout(f"not acquired: {seen or ', '.join(names)}", names=names, explanation=seen)


def _ask(said: Said, names: tuple[str, ...], is_several: bool) -> Ask:
    mode, permits, wait_ms = said.get("mode", "exclusive"), said.get("permits", 0), said.get("wait_ms", 0)
    if mode not in _MODES:
        raise UsageError(f"mode is exclusive or shared, not {mode!r}")
    if wait_ms > WAIT_MS_MAX:
        raise UsageError(f"wait_ms is at most {WAIT_MS_MAX}: to wait for longer, ask again")
    if not said["ttl_ms"]:
        raise UsageError("ttl_ms is above 0: a hold over HTTP lives by its own time")
    return Ask(
        names,
        tier=tier_of(said),
        mode=PERMIT if permits else _MODES[mode],
        permits=permits,
        wait_ms=wait_ms,
        ttl_ms=said["ttl_ms"],
        request_id=said.get("request_id", ""),
        owner=said.get("owner", ""),
        meta=said.get("meta"),
        is_several=is_several,
    )


def _which(request: Request, said: Said) -> tuple[str, str, int]:
    return said.get("hold_id", ""), request.path_params["name"], said.get("fence", 0)


async def _unless_gone(request: Request, call: Coroutine[Any, Any, Result]) -> Result:
    """The result of a call; withdrawn if the client disconnects first."""
    calling = asyncio.ensure_future(call)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({calling, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not calling.done():
            raise ClientGone
        return calling.result()
    finally:
        gone.cancel()
        if not calling.done():
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _stale(page: Page) -> dict[str, Any]:
    """The shards without a leader: what is listed of them is what a node has followed."""
    return {"stale_shards": page.stale_shards} if page.stale_shards else {}


def _held(held: Held) -> dict[str, Any]:
    return {
        "hold_id": held.hold_id,
        "names": held.names,
        "fence": held.fence or None,
        "tier": held.tier.name.lower(),
        "mode": _MODE_WORDS[held.mode],
        "safe_for_ms": held.safe_for_ms(SHARED_TTL_S),
        "ttl_ms": held.ttl_ms,
    }


def _lock(row: dict[bytes, Any]) -> dict[str, Any]:
    return {
        "name": row[b"name"].decode(),
        "mode": _MODE_WORDS.get(row[b"mode"].decode()),
        "holder_count": row[b"holders"],
        "waiter_count": row[b"waiters"],
        "fence": row[b"fence"] or None,
    }


def _explained(seen: Explanation) -> dict[str, Any]:
    return {
        "name": seen.name,
        "is_taken": seen.is_taken,
        "holders": [_holder(each) for each in seen.holders],
        "waiters": [_waiter(each) for each in seen.queue],
        "holder_count": seen.holder_count,
        "waiter_count": seen.waiter_count,
        "sentence": str(seen),
    }


def _holder(seen: Holder) -> dict[str, Any]:
    return {
        "client": party(seen.party),
        "fence": seen.fence or None,
        "mode": _MODE_WORDS.get(seen.mode),
        "since": None if seen.since is None else seen.since.isoformat(),
        "for_s": seen.held_for,
        "left_s": seen.left,
        "meta": seen.meta,
    }


def _waiter(seen: Waiting) -> dict[str, Any]:
    return {
        "place": seen.position + 1,
        "client": party(seen.party),
        "mode": _MODE_WORDS.get(seen.mode),
        "names": seen.names,
        "for_s": seen.waited_for,
        "left_s": seen.left,
    }


def _plain(told: Any) -> Any:
    """A reply of the service as JSON has it."""
    match told:
        case dict():
            return {_plain(key): _plain(value) for key, value in told.items()}
        case list():
            return [_plain(value) for value in told]
        case bytes():
            return told.decode("utf-8", "replace")
        case _:
            return told
