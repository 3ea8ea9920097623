"""`acquire`, `extend`, `release`: a hold that outlives the process that took it, for scripts of several processes.

The hold has a ttl of its own and nothing renews it: `info` and `ls` show when it ends. Its session stays open,
with a grace (the reconnect window) as long as the ttl. The other two take the token that `acquire` prints.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from math import inf
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from fencehold.cli import shapes
from fencehold.cli.caller import in_passing
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.holders import holding
from fencehold.cli.options import (
    URL,
    ClientName,
    Json,
    Limit,
    Name,
    Shared,
    Tier,
    Timeout,
    Try,
    Url,
    lasting,
    wait_of,
)
from fencehold.cli.output import ago, clean, clock_time, note, say, say_json, to_person
from fencehold.cli.tokens import Token, decode
from fencehold.cli.wire import Wire, connect, patiently, wired
from fencehold.drivers.resp.wire import Elsewhere, Moved, Suspended, error
from fencehold.errors import (
    FenceholdError,
    OutcomeUnknown,
    Overloaded,
    PermissionDenied,
    SessionExpired,
    Unavailable,
    UsageError,
)

_RESUMES_MAX = 100
"""How often one wait may resume its session: more failovers than a script should wait through."""
_MOVING_S = 5.0
"""How long a name may be moving to another shard before a try gives up. The same as in the SDK."""
_AGAIN_S = 0.1

TokenText = Annotated[str, typer.Argument(metavar="TOKEN", help="What `acquire` printed; - reads it from stdin.")]


def acquire(
    name: Name,
    ttl: Annotated[
        float,
        typer.Option(
            parser=lasting,
            metavar="DURATION",
            help="How long it is held unless extended.",
            show_default="60s",
        ),
    ] = 60.0,
    timeout: Timeout = None,
    attempt: Try = False,
    shared: Shared = False,
    limit: Limit = 0,
    called: ClientName = "fencehold acquire",
    tier: Tier = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Acquire a name and leave it held: prints a token for `release` and `extend`.

    Exits 1 if it is busy, and says who holds it. To hold a lock while a command runs, `fencehold run` is safer: it
    knows when the hold is lost.
    """
    wait = wait_of(attempt, timeout)
    mode = _mode(shared, limit)
    view = None
    with _signals_raised(), contextlib.closing(Member(url, ttl, tier, called, name)) as member:
        try:
            grant = _acquired(member, name, wait, mode)
            if grant is not None:
                _print(member.token(name, grant["fence"]), ttl, as_json)
        except BaseException:
            # On any failure, a signal included: no hold may remain without a token. If the
            # server cannot be reached, the hold ends with its ttl; the original error is what is reported here.
            with contextlib.suppress(FenceholdError):
                member.wire.call("SESSION.CLOSE")
            raise
        if grant is None:
            member.wire.call("SESSION.CLOSE")
            view = _seen(member.wire, name)
    if view is not None:
        raise _busy(view, wait)


def _seen(wire: Wire, name: str) -> dict[str, Any]:
    """The holders of a name; a caller that may not see them only learns that it is busy."""
    try:
        view: dict[str, Any] = wire.call("LOCK.INFO", name)
    except PermissionDenied:
        return {"name": name}
    return view


def _busy(view: dict[str, Any], wait: float | None) -> typer.Exit:
    """Who holds it now. If the name has become free since, the caller may try again."""
    waited = f"was not acquired within {ago(wait * 1000)}" if wait else "is busy"
    if "holds" not in view:
        return fail(Exit.NO, f"{clean(view['name'])} {waited}", name=view["name"], holds=None, waiter_count=None)
    hint = "" if view["holds"] or view["kept"] else "it has become free since: try again"
    seen = shapes.lock(view)
    facts = {"name": seen["name"], "holds": seen["holds"], "waiter_count": seen["waiter_count"]}
    return fail(Exit.NO, f"{clean(view['name'])} {waited}: {holding(view)}", hint, **facts)


def _mode(shared: bool, limit: int) -> tuple[str | int, ...]:
    if shared and limit:
        raise UsageError("--shared and --limit exclude each other")
    return ("MODE", "S") if shared else ("LIMIT", limit) if limit else ()


class Member:
    """A session of this process, on the node that leads."""

    def __init__(self, url: str, ttl: float, tier: str, called: str, name: str) -> None:
        """`name`: what it is for, and so in which shard."""
        self._url = url
        self._name = name
        self._tier = tier
        self._called = called
        self.ttl = ttl
        self._open()

    def _open(self) -> None:
        self.wire = connect(self._url, tier=self._tier, name=self._name)
        try:
            lives = ("TTL", _ms(self.ttl), "GRACE", _ms(self.ttl))
            self._opened = self.wire.call("SESSION.OPEN", *lives, "META", in_passing(self._called))
        except BaseException:
            self.close()
            raise

    def token(self, name: str, fence: int) -> Token:
        shard = self.wire.hello.get("shard")
        return Token(self._opened["session"], self._opened["secret"], fence, name, self._tier, shard)

    def resume(self) -> None:
        """Resume the session at the current leader."""
        self.close()
        self.wire = connect(self._url, tier=self._tier, name=self._name)
        self.wire.call("SESSION.RESUME", self._opened["session"], self._opened["secret"])

    def move(self) -> None:
        """Open a session where the name is at home now: the one it has is of another shard, and holds nothing."""
        with contextlib.suppress(FenceholdError):
            self.wire.call("SESSION.CLOSE")
        self.close()
        self._open()

    def close(self) -> None:
        """Disconnect: the session stays open without us."""
        self.wire.close()


def _acquired(member: Member, name: str, wait: float | None, mode: tuple[str | int, ...]) -> Any:
    """Wait for the grant; None if it was not granted in time.

    It keeps waiting when the node ends, or is busy, and when the name moves to another shard.
    """
    began_at = time.monotonic()
    until = inf if wait is None else began_at + wait
    request = ("LOCK.ACQUIRE", name, "REQUEST", 1, "ASYNC", "TTL", _ms(member.ttl), *mode)
    resumes = 0
    while True:
        try:
            return _waited(member, request, until)
        except (Overloaded, Elsewhere, Suspended):
            # Of another cell, or of one that may be cut off: not reachable by this connection.
            raise
        except Moved:
            now = time.monotonic()
            if wait and now >= until:
                return None
            if wait == 0 and now - began_at >= _MOVING_S:
                raise
            time.sleep(_AGAIN_S)
            member.move()
        except (Unavailable, OutcomeUnknown):
            resumes += 1
            if resumes > _RESUMES_MAX:
                raise
            # Idempotent: with the same number, it is the same request.
            member.resume()


def _waited(member: Member, request: tuple[str | int, ...], until: float) -> Any:
    wire, ttl = member.wire, member.ttl
    asked = False

    def ask() -> Any:
        nonlocal asked
        if asked:
            # It is busy, and the session has to live until it is not.
            with contextlib.suppress(Overloaded):
                wire.call_once("SESSION.KEEPALIVE")
        asked = True
        patience = () if until == inf else ("WAIT", _ms(until - time.monotonic()))
        return wire.call_once(*request, *patience)

    reply = patiently(ask, until, rest_s_max=ttl / 3)
    if reply is None or "fence" in reply:
        return reply
    while True:
        push = wire.push(ttl / 3)
        if push is None or push[0] == "grant":
            # Also after the grant: the ttl is to count from now.
            wire.call("SESSION.KEEPALIVE")
        match push:
            case ["grant", _, grant]:
                return grant
            case ["timeout" | "cancelled", *_]:
                return None
            case ["refused", _, code, message]:
                # It may wait no longer: a right was revoked, it is in a deadlock, or the name moves.
                raise error(code, message)
            case ["ended", *_]:
                raise SessionExpired("the session ended while this waited: the ttl is too short for this network")


def _print(token: Token, ttl: float, as_json: bool) -> None:
    if as_json:
        say_json({"token": token.encode(), **_held(token, _ms(ttl))})
        return
    say(token.encode())
    if to_person():
        note(f"{_lasting(token, _ms(ttl))}; then it is free")


def _held(token: Token, ttl_ms: int) -> dict[str, Any]:
    return {"name": token.name, "fence": token.fence, **shapes.until(ttl_ms)}


def _lasting(token: Token, ttl_ms: int) -> str:
    ends = f"until {clock_time(ttl_ms)} ({ago(ttl_ms)} from now)"
    return f"{clean(token.name)} is held with fence {token.fence} {ends}"


def extend(
    token: TokenText,
    ttl: Annotated[
        float | None,
        typer.Option(parser=lasting, metavar="DURATION", help="From now; at most, and by default, as acquired."),
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Extend a hold: it ends its ttl from now. Exits 75 if it is lost."""
    held = _read(token)
    with wired(url, tier=held.tier, name=held.name, shard=held.shard) as wire:
        longest_ms = _resume(wire, held)["ttl_ms"]
        ttl_ms = longest_ms if ttl is None else _ms(ttl)
        if ttl_ms > longest_ms:
            raise UsageError(f"it was acquired with --ttl {ago(longest_ms)} and cannot be extended beyond that")
        wire.call("LOCK.EXTEND", held.name, held.fence, ttl_ms)
    if as_json:
        say_json(_held(held, ttl_ms))
    elif to_person():
        note(_lasting(held, ttl_ms))


def release(token: TokenText, url: Url = URL, as_json: Json = False) -> None:
    """Release the hold of an `acquire`. Exits 75 if it was lost before."""
    held = _read(token)
    with wired(url, tier=held.tier, name=held.name, shard=held.shard) as wire:
        _resume(wire, held)
        try:
            wire.call("LOCK.RELEASE", held.name, held.fence)
        finally:
            wire.call("SESSION.CLOSE")
    if as_json:
        say_json({"name": held.name, "fence": held.fence, "released": True})


def _read(token: str) -> Token:
    return decode(sys.stdin.readline() if token == "-" else token)


def _resume(wire: Wire, held: Token) -> Any:
    try:
        return wire.call("SESSION.RESUME", held.session, held.secret)
    except SessionExpired:
        message = f"{clean(held.name)} with fence {held.fence} is no longer held: it expired, or was released"
        raise fail(Exit.LOST, message) from None


@contextlib.contextmanager
def _signals_raised() -> Iterator[None]:
    """Within, a signal that would end this process at once is an exception, so that it ends in order."""
    before = {number: signal.signal(number, _raise) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(Exit.SIGNAL + number)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
