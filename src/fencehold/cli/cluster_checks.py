"""Checks of several nodes: could another take over, is it up to date, and would clients reach it?"""

from collections import defaultdict
from collections.abc import Iterator

from fencehold.cli.findings import Finding
from fencehold.cli.survey import Seen, Survey

_LAG_MAX = 1_000
"""Entries that a standby may be behind: more than a second of a busy leader's."""


def cluster(seen: Survey) -> Iterator[Finding]:
    """Findings from a survey of the nodes."""
    yield _nodes(seen)
    yield from _lag(seen.nodes)
    yield from _names(seen.nodes)
    yield from _addresses(seen.nodes)
    yield from _versions(seen.nodes)
    yield from _troubles(seen.nodes)


def _nodes(seen: Survey) -> Finding:
    standbys = [node for node in seen.nodes if node.role == "standby"]
    said = f"{_called(seen.leader)} leads, {len(standbys)} stand by" if seen.leader else "no node leads"
    if seen.leader is None:
        return Finding("cluster", "fail", said, "check the nodes' logs, and their engine")
    if not standbys:
        return Finding("cluster", "warn", said, "no node could take over: start more nodes on the same engine")
    return Finding("cluster", "ok", said)


def _lag(nodes: list[Seen]) -> Iterator[Finding]:
    behind = {_called(node): node.lag for node in nodes if node.role == "standby" and node.lag is not None}
    if behind:
        worst = max(behind, key=lambda name: behind[name])
        slow = behind[worst] > _LAG_MAX
        advice = "a failover would wait for it: check its machine, and its network to the engine" if slow else ""
        yield Finding("lag", "warn" if slow else "ok", f"at most {behind[worst]} entries, of {worst}", advice)


def _names(nodes: list[Seen]) -> Iterator[Finding]:
    places: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        places[node.node].append(node.address)
    for name, addresses in places.items():
        if name and len(addresses) > 1:
            said = f"{len(addresses)} nodes are called {name}: {', '.join(addresses)}"
            yield Finding(
                "names", "warn", said, "give each a --node of its own: otherwise they cannot be distinguished"
            )


def _addresses(nodes: list[Seen]) -> Iterator[Finding]:
    for node in nodes:
        if node.role == "unreachable":
            said = f"{_called(node)} cannot be reached: {node.note}"
            yield Finding(
                "addresses", "warn", said, "if it should be there, check that it runs, and its --advertise"
            )
        elif not node.is_at_home:
            advice = "clients and the other nodes are sent there: correct its --advertise"
            yield Finding("addresses", "fail", f"{_called(node)}, {node.address}: {node.note}", advice)


def _versions(nodes: list[Seen]) -> Iterator[Finding]:
    found = sorted({node.version for node in nodes if node.version})
    if len(found) > 1:
        advice = "fine during an upgrade, the leader last; then run the same version on all"
        yield Finding("versions", "warn", ", ".join(found), advice)


def _troubles(nodes: list[Seen]) -> Iterator[Finding]:
    for node in nodes:
        if node.role in ("standby", "waiting") and node.is_at_home and node.note:
            yield Finding(node.role, "warn", f"{_called(node)}: {node.note}", "see its log")


def _called(node: Seen) -> str:
    return node.node or node.address
