"""The nemesis: what goes wrong, when, and how long. Everything is drawn from the seed.

Each run has its own taste: some faults are frequent in it, others never happen. Faults overlap; each is undone by
itself, and at the end everything is.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.network import Way
from tests.simulation.store import HOST as STORE
from tests.simulation.store import Mood

if TYPE_CHECKING:
    from tests.simulation.world import World


MOVES_STRUCK = 0.6
"""How often something happens to a node just when slots begin to move."""


class Taste(NamedTuple):
    """How often what happens."""

    every_s: float
    weights: tuple[int, ...]
    """Of `KINDS`, in that order."""


class Nemesis:
    """Does things to a world, until told to stop."""

    def __init__(self, world: "World", random: Random, taste: Taste) -> None:
        self._world = world
        self._random = random
        self._taste = taste
        self._kinds = [getattr(self, kind) for kind in KINDS]
        self._undo: dict[int, Callable[[], None]] = {}
        self._numbers = 0
        self._over = False

    def begin(self) -> None:
        self._world.scheduler.after(self._random.expovariate(1 / self._taste.every_s), self._strike)

    def end(self) -> None:
        """Undo everything, now."""
        self._over = True
        for number in list(self._undo):
            self._heal(number)

    def _strike(self) -> None:
        if self._over:
            return
        kind = self._random.choices(self._kinds, self._taste.weights)[0]
        kind()
        self.begin()

    def strike_soon(self) -> None:
        """Now and then do something to a node, or to its network, a moment from now: slots begin to move."""
        if self._random.random() < MOVES_STRUCK:
            self._world.scheduler.after(self._some_s(0.0005, 0.5), self._strike_node)

    def _strike_node(self) -> None:
        if not self._over:
            kind = self._random.choice(NODE_KINDS)
            getattr(self, kind)()

    def _until(self, seconds: float, undo: Callable[[], None]) -> None:
        self._numbers += 1
        self._undo[self._numbers] = undo
        self._world.scheduler.after(seconds, self._heal, self._numbers)

    def _heal(self, number: int) -> None:
        undo = self._undo.pop(number, None)
        if undo is not None:
            undo()

    def _some_s(self, shortest: float, longest: float) -> float:
        """More often short than long."""
        return float(shortest * (longest / shortest) ** self._random.random())

    def _node(self) -> str:
        """A victim: the leader, if there is one, more often than not."""
        leader = self._world.leader(self._shard())
        if leader and self._random.random() < 0.65:
            return leader
        return self._random.choice(self._world.nodes)

    def _shard(self) -> int:
        """Whose leader; where there is one shard, nothing is drawn."""
        shards = self._world.shards
        return self._random.randrange(shards) if shards > 1 else 0

    def _client(self) -> str:
        return self._random.choice(self._world.clients)

    # Nodes.

    def kill_node(self) -> None:
        node = self._node()
        if self._world.kill(node, silently=False):
            self._until(self._some_s(0.2, 8), lambda: self._world.start_node(node))

    def kill_all_nodes(self) -> None:
        for node in self._world.nodes:
            if self._world.kill(node, silently=False):
                self._until(self._some_s(0.2, 5), lambda node=node: self._world.start_node(node))  # type: ignore[misc]

    def lose_node(self) -> None:
        """Its machine is gone, and says nothing."""
        node = self._node()
        if self._world.kill(node, silently=True):
            ways = self._world.all_ways(node)
            self._world.network.block(*ways)

            def back() -> None:
                self._world.network.unblock(*ways)
                self._world.start_node(node)

            self._until(self._some_s(0.5, 10), back)

    def stop_node(self) -> None:
        """A clean stop, as for an upgrade."""
        node = self._node()
        if self._world.ask_to_stop(node):
            self._until(self._some_s(1, 8), lambda: self._world.start_node(node))

    def pause_node(self) -> None:
        node = self._node()
        if self._world.pause(node):
            self._until(self._some_s(0.05, 15), lambda: self._world.go_on(node))

    # Clients.

    def kill_client(self) -> None:
        client = self._client()
        silently = self._random.random() < 0.3
        if self._world.kill(client, silently=silently):
            ways = self._world.all_ways(client) if silently else []
            self._world.network.block(*ways)

            def back() -> None:
                self._world.network.unblock(*ways)
                self._world.start_client(client)

            self._until(self._some_s(0.5, 20), back)

    def pause_client(self) -> None:
        client = self._client()
        if self._world.pause(client):
            self._until(self._some_s(0.05, 25), lambda: self._world.go_on(client))

    # The network.

    def isolate_client(self) -> None:
        client = self._client()
        self._block("client", [(client, node) for node in self._world.nodes], self._some_s(0.1, 20))

    def part_client_from_node(self) -> None:
        self._block("client and node", [(self._client(), self._node())], self._some_s(0.1, 20))

    def part_clients_from_node(self) -> None:
        node = self._node()
        self._block("node and clients", [(client, node) for client in self._world.clients], self._some_s(0.1, 15))

    def part_node_from_store(self) -> None:
        self._block("node and store", [(self._node(), STORE)], self._some_s(0.1, 12))

    def isolate_node(self) -> None:
        node = self._node()
        self._block("node", [way for way in self._world.all_ways(node) if way[0] == node], self._some_s(0.1, 15))

    def part_nodes(self) -> None:
        """Each from the next: nobody sees the same others."""
        nodes = self._world.nodes
        ways = [(node, nodes[(index + 1) % len(nodes)]) for index, node in enumerate(nodes)]
        self._block("nodes", ways[: self._random.randint(1, len(ways))], self._some_s(0.1, 10))

    def _block(self, what: str, pairs: list[Way], seconds: float) -> None:
        """Mostly in both directions."""
        there = [pair for pair in pairs if pair[0] != pair[1]]
        if not there:
            return
        back = [(target, source) for source, target in there]
        ways = self._random.choice((there + back, there + back, there, back))
        direction = "both ways" if len(ways) > len(there) else "there" if ways is there else "back"
        self._world.tell_fault(
            "block", f"{what} {direction}: {', '.join(f'{a}-{b}' for a, b in there)}, {seconds:.3f} s"
        )
        self._world.network.block(*ways)
        self._until(seconds, lambda: self._world.network.unblock(*ways))

    def cut_lines(self) -> None:
        """By somebody in between; only to clients who said, by their grace, that this may be."""
        clients = [client for client in self._world.clients if self._world.bears_cuts(client)]
        if clients:
            self._world.cut(self._random.choice(clients))

    # The store.

    def lose_quorum(self) -> None:
        condition = self._world.condition
        if condition.has_quorum:
            seconds = self._some_s(0.2, 8)
            self._world.tell_fault("quorum", f"lost for {seconds:.3f} s")
            condition.lose_quorum()
            self._until(seconds, condition.find_quorum)

    def trouble_store(self) -> None:
        condition = self._world.condition
        if condition.mood == Mood():
            share = self._random.choice((0.02, 0.1, 0.4))
            condition.mood = Mood(*(share * self._random.random() for _ in range(3)))
            seconds = self._some_s(1, 20)
            self._world.tell_fault("mood", f"{condition.mood} for {seconds:.3f} s")

            def calm() -> None:
                condition.mood = Mood()

            self._until(seconds, calm)


KINDS = (
    "kill_node",
    "kill_all_nodes",
    "lose_node",
    "stop_node",
    "pause_node",
    "kill_client",
    "pause_client",
    "isolate_client",
    "part_client_from_node",
    "part_clients_from_node",
    "part_node_from_store",
    "isolate_node",
    "part_nodes",
    "cut_lines",
    "lose_quorum",
    "trouble_store",
)

NODE_KINDS = (
    "kill_node",
    "kill_node",
    "lose_node",
    "stop_node",
    "pause_node",
    "pause_node",
    "part_node_from_store",
    "isolate_node",
    "part_nodes",
)
