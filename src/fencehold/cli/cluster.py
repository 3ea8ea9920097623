"""`fencehold cluster`: the nodes, the leader, and how far the others are."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Json, Url, lasting
from fencehold.cli.output import clean, console, say_json, say_rows, table, to_person
from fencehold.cli.screen import show_until_quit
from fencehold.cli.survey import Seen, Survey, survey
from fencehold.cli.wire import CannotConnect

if TYPE_CHECKING:
    from rich.console import RenderableType

_HEADERS = ("NODE…", "ADDRESS…", "ROLE", "EPOCH:", "POSITION:", "LAG:", "ENGINE", "NOTE ")
_STYLES = {"leader": "green", "waiting": "yellow", "unreachable": "red"}


def cluster(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until q or ctrl-c.")] = False,
    interval: Annotated[
        float, typer.Option(parser=lasting, metavar="DURATION", help="How often to refresh.", show_default="1s")
    ] = 1.0,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Show the nodes: the leader, the standbys, how far each is. Exits 1 if none leads, 69 if none answers.

    It asks the nodes that the URL names and those they know, so one address is enough while that node is up.
    """
    if watch and to_person() and not as_json:
        show_until_quit(Watching(url).draw, interval)
        return
    seen = survey(url)
    if as_json:
        say_json(_facts(seen))
    else:
        _show(seen)
    if not seen.answers:
        where = "; ".join(f"{node.address}: {node.note}" for node in seen.nodes)
        raise CannotConnect(f"cannot reach a server at {where}")
    if seen.leader is None:
        raise fail(Exit.NO, "no node leads", "see the note and the log of each node, and check its engine")


def _facts(seen: Survey) -> dict[str, Any]:
    leader = seen.leader
    nodes = [
        {
            "node": node.node or None,
            "address": node.address,
            "role": node.role,
            "reachable": node.role != "unreachable",
            "epoch": node.epoch or None,
            "position": node.position,
            "lag": node.lag,
            "engine": node.engine or None,
            "version": node.version or None,
            "note": node.note or None,
        }
        for node in seen.nodes
    ]
    return {
        "leader": leader.node or leader.address if leader else None,
        "epoch": leader.epoch if leader else None,
        "nodes": nodes,
    }


def _show(seen: Survey) -> None:
    if not to_person():
        say_rows(_HEADERS, map(_row, seen.nodes), empty="")
    elif seen.answers:
        console().print(_table(seen))


def _row(node: Seen) -> tuple[str, ...]:
    is_there = node.role != "unreachable"
    return (
        clean(node.node),
        clean(node.address),
        node.role,
        str(node.epoch) if node.role == "leader" else "",
        str(node.position) if is_there or node.lag is not None else "",
        "" if node.lag is None or node.role == "leader" else str(node.lag),
        clean(node.engine),
        clean(node.note),
    )


def _table(seen: Survey) -> "RenderableType":
    return table(_HEADERS, map(_row, seen.nodes), styles=[_STYLES.get(node.role, "") for node in seen.nodes])


class Watching:
    """Samples, one after the other; it remembers the names of nodes that no longer answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._names: dict[str, str] = {}

    def draw(self) -> "RenderableType":
        """The next sample."""
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        seen = self._look()
        head = Text.assemble(("fencehold cluster", "bold"), (f"   {time.strftime('%H:%M:%S')}   q quits\n", "dim"))
        return Group(head, _table(seen), Text("" if seen.leader else "\nno node leads", "bold red"))

    def _look(self) -> Survey:
        nodes = survey(self._url).nodes
        self._names |= {node.address: node.node for node in nodes if node.node}
        return Survey([node._replace(node=self._names.get(node.address, "")) for node in nodes])
