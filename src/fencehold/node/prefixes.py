"""Prefixes: the watchers of the beginning of a name, found without a scan of all watchers.

A radix tree of the watched prefixes: each edge is a piece of text, and the watchers of a prefix are kept at the
node it leads to. A name is followed from the root until its letters part from every edge.

1. To find the watchers of a name costs a step for each place where watched prefixes begin as the name does and
   then end or part: none for a name unlike all of them, however many they are; never more than the name has
   letters.
2. To add or remove one costs a step for each node on its way. No other prefix is visited.
3. The tree has at most two nodes for each prefix: what is removed leaves nothing behind.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

Watcher = TypeVar("Watcher")


class _Node(Generic[Watcher]):
    """Where a piece of text leads."""

    __slots__ = ("children", "piece", "watchers")

    def __init__(self, piece: str) -> None:
        self.piece = piece
        self.children: dict[str, _Node[Watcher]] = {}
        """By the first letter of their piece."""
        self.watchers: dict[Watcher, None] = {}
        """In the order they came."""


class Prefixes(Generic[Watcher]):
    """Watchers by the prefixes they watch. The empty prefix begins every name, and what has no name at all."""

    def __init__(self) -> None:
        self._root: _Node[Watcher] = _Node("")

    def find(self, names: tuple[str, ...]) -> Sequence[Watcher]:
        """The watchers of any of these names, in any order.

        Each comes once, unless it watches two prefixes of which one begins the other.
        """
        if len(names) == 1:
            return self._find(names[0])
        found = dict(self._root.watchers)
        for name in names:
            found.update(dict.fromkeys(self._find(name)))
        return tuple(found)

    def _find(self, name: str) -> Sequence[Watcher]:
        node, at = self._root, 0
        found: Sequence[Watcher] = tuple(node.watchers) if node.watchers else ()
        while (child := node.children.get(name[at : at + 1])) is not None and name.startswith(child.piece, at):
            at += len(child.piece)
            node = child
            if node.watchers:
                found = (*found, *node.watchers)
        return found

    def add(self, prefix: str, watcher: Watcher) -> None:
        """Let a watcher be found by the names that begin so."""
        node, rest = self._root, prefix
        while rest:
            child = node.children.get(rest[0])
            if child is None:
                child = node.children[rest[0]] = _Node(rest)
            shared = _shared(child.piece, rest)
            if shared < len(child.piece):
                child = _split(node, child, shared)
            node, rest = child, rest[shared:]
        node.watchers[watcher] = None

    def discard(self, prefix: str, watcher: Watcher) -> None:
        """Undo `add`."""
        way: list[_Node[Watcher]] = [self._root]
        at = 0
        while at < len(prefix):
            child = way[-1].children.get(prefix[at])
            if child is None or not prefix.startswith(child.piece, at):
                return
            way.append(child)
            at += len(child.piece)
        way[-1].watchers.pop(watcher, None)
        # The last node may be of no use any more, and then the one above it neither. The root stays.
        for depth in range(len(way) - 1, max(0, len(way) - 3), -1):
            _tidy(way[depth - 1], way[depth])

    def __len__(self) -> int:
        """How many nodes there are below the root."""
        nodes, count = [self._root], -1
        while nodes:
            nodes.extend(nodes.pop().children.values())
            count += 1
        return count


def _shared(one: str, other: str) -> int:
    """How many letters two texts begin with in common."""
    if other.startswith(one):
        return len(one)
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


def _split(above: _Node[Watcher], node: _Node[Watcher], at: int) -> _Node[Watcher]:
    """Put a node in the midst of the edge that leads to another."""
    between: _Node[Watcher] = _Node(node.piece[:at])
    above.children[between.piece[0]] = between
    node.piece = node.piece[at:]
    between.children[node.piece[0]] = node
    return between


def _tidy(above: _Node[Watcher], node: _Node[Watcher]) -> None:
    """Remove a node without watchers and without branches."""
    if node.watchers or len(node.children) > 1:
        return
    if not node.children:
        del above.children[node.piece[0]]
        return
    [child] = node.children.values()
    child.piece = node.piece + child.piece
    above.children[child.piece[0]] = child
