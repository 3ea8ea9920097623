"""`ls`, `info`, `sessions`, `status`, `ping`: what is held, by whom, and who waits for it."""

import json
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Json, Name, Prefix, Tier, Url
from fencehold.cli.output import ago, clean, console, left, say, say_json, say_rows, to_person
from fencehold.cli.wire import Wire, facts, wired

MODES = {"X": "exclusive", "S": "shared", "P": "semaphore", "": "free"}
_PAGE = 1_000


def ls(prefix: Prefix = "", tier: Tier = "", url: Url = URL, as_json: Json = False) -> None:
    """List the names that are held or waited for."""
    with wired(url, tier=tier) as wire:
        names = all_names(wire, prefix)
        if as_json:
            for name in names:
                say_json(name)
            return
        rows = [(n["name"], MODES[n["mode"]], n["holders"], n["waiters"], n["fence"]) for n in names]
    say_rows(("NAME", "MODE", "HOLDERS:", "WAITERS:", "FENCE:"), rows, empty="nothing is held")


def all_names(wire: Wire, prefix: str = "") -> Iterator[dict[str, Any]]:
    """Every name in use with that prefix, page by page."""
    cursor = ""
    while True:
        cursor, page = wire.call("LOCK.LIST", "PREFIX", prefix, "CURSOR", cursor, "COUNT", _PAGE)
        yield from page
        if not cursor:
            return


def info(name: Name, tier: Tier = "", url: Url = URL, as_json: Json = False) -> None:
    """Show who holds a name, since when, and who waits for it. Exits 1 if nobody holds it."""
    with wired(url, tier=tier) as wire:
        view = wire.call("LOCK.INFO", name)
    if as_json:
        say_json(decoded(view))
    else:
        show(view)
    if not view["holds"]:
        raise fail(Exit.NO, f"nobody holds {clean(name)}")


def decoded(view: dict[str, Any]) -> dict[str, Any]:
    """The view of a name with its metadata read, where it is JSON."""
    people = [{**one, **_metas(one)} for one in (*view["holds"], *view["waiters"])]
    count = len(view["holds"])
    return {**view, "holds": people[:count], "waiters": people[count:]}


def _metas(one: dict[str, Any]) -> dict[str, Any]:
    return {key: read_meta(one[key]) for key in ("meta", "session_meta") if key in one}


def read_meta(text: str) -> Any:
    """Metadata as it was meant: what JSON says, or the text it is."""
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return text


def who(one: dict[str, Any]) -> str:
    """Who holds or waits, in a few words: what the client is called, on which host, which process."""
    known = read_meta(one.get("session_meta", one.get("meta", "")))
    if not isinstance(known, dict):
        return clean(known)
    words = [str(known[key]) for key in ("client", "app", "name") if known.get(key)][:1]
    words += [f"on {known['host']}"] if known.get("host") else []
    words += [f"pid {known['pid']}"] if known.get("pid") else []
    words += [f"from {known['peer']}"] if known.get("peer") else []
    return clean(" ".join(words)) or f"session {one['session']}"


def show(view: dict[str, Any]) -> None:
    """The holders of a name and its queue, for people."""
    holds = [
        (hold["fence"], MODES[hold["mode"]], who(hold), _owner(hold), ago(hold["held_ms"]), left(hold["left_ms"]))
        for hold in view["holds"]
    ]
    waiters = [
        (place, MODES[waiter["mode"]], who(waiter), _owner(waiter), ago(waiter["waited_ms"]), _patience(waiter))
        for place, waiter in enumerate(view["waiters"], 1)
    ]
    if not to_person():
        say_rows((), [("hold", *row) for row in holds] + [("waiter", *row) for row in waiters], empty="")
        return
    out = console()
    state = (
        "held" if holds else f"free in {ago(view['delayed_ms'])} (lock-delay)" if view["delayed_ms"] else "free"
    )
    out.print(clean(view["name"]), style="bold", end="")
    out.print(f"  {state}", style="green" if holds else "dim")
    if holds:
        say_rows(("FENCE:", "MODE", "HELD BY", "OWNER", "SINCE:", "LASTS"), holds, empty="")
    if waiters:
        out.print(f"\n{len(waiters)} waiting", style="bold")
        say_rows(("#:", "MODE", "WHO", "OWNER", "WAITED:", "GIVES UP"), waiters, empty="")


def _owner(one: dict[str, Any]) -> str:
    return f"{one['session']}/{one['owner']}" if one["owner"] else str(one["session"])


def _patience(waiter: dict[str, Any]) -> str:
    return "never" if waiter["left_ms"] < 0 else f"in {ago(waiter['left_ms'])}"


def sessions(tier: Tier = "", url: Url = URL, as_json: Json = False) -> None:
    """List the sessions: who is there, what each holds and waits for."""
    with wired(url, tier=tier) as wire:
        found = wire.call("SESSION.LIST")
    if as_json:
        for one in found:
            say_json({**one, "connected": bool(one["connected"]), "meta": read_meta(one["meta"])})
        return
    rows = [
        (
            one["session"],
            who(one),
            "yes" if one["connected"] else "no",
            ago(one["opened_ms_ago"]),
            ago(max(0, one["expires_in_ms"])),
            one["holds"],
            one["waits"],
        )
        for one in found
    ]
    headers = ("SESSION:", "WHO", "CONNECTED", "AGE:", "EXPIRES IN:", "HOLDS:", "WAITS:")
    say_rows(headers, rows, empty="no sessions")


def status(tier: Tier = "", url: Url = URL, as_json: Json = False) -> None:
    """Show what the node that leads says of itself: its version, role, position, counts."""
    with wired(url, patience_s=0, tier=tier) as wire:
        found = {"url": f"fencehold://{wire.endpoint}", **facts(wire)}
    if as_json:
        say_json(found)
    else:
        say_rows(("FACT", "VALUE"), list(found.items()), empty="")


def ping(
    any_role: Annotated[
        bool, typer.Option("--any", help="Be content with a node that answers, whether it leads or not.")
    ] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Ask whether a server is there and leads. Exits 1 if it does not lead, 69 if none answers.

    Only the nodes that the URL names are asked: of several, the one that leads, or the first that answers.
    """
    with wired(url, patience_s=0, named_only=True) as wire:
        started_at = time.perf_counter()
        wire.call("PING")
        round_trip_us = round((time.perf_counter() - started_at) * 1e6)
        role, version = wire.hello["role"], wire.hello["version"]
        leader = "" if wire.leads else ", ".join(map(str, wire.leader()))
    if as_json:
        say_json({"server": str(wire.endpoint), "role": role, "version": version, "round_trip_us": round_trip_us})
    else:
        say(f"{wire.endpoint} answers in {round_trip_us} µs: fencehold {version}, {role}")
    if role != "leader" and not any_role:
        raise fail(Exit.NO, f"{wire.endpoint} does not lead" + (f"; {leader} does" if leader else ""))
