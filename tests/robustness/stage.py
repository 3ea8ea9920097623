"""The stage: an etcd and nodes on it, as real processes in a folder, and the load that works on them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rig.etcd import EtcdCluster
from rig.nodes import NodeGroup
from rig.processes import await_true
from tests.robustness.load import Load, Shape

GRANTS_PER_S_MIN = 30
"""With less traffic before a fault, nothing is shown by it."""


class Stage(NamedTuple):
    """What is running."""

    etcd: EtcdCluster
    nodes: NodeGroup
    load: Load

    def await_traffic(self) -> None:
        """Wait until the load is well under way."""
        await_true(lambda: self.load.is_moving(GRANTS_PER_S_MIN), "there is traffic")


@contextmanager
def staged(
    folder: Path, *, members: int = 3, shape: Shape | None = None, seed: int = 0, etcd_flags: Sequence[str] = ()
) -> Iterator[Stage]:
    """An etcd of so many members, three nodes, and clients at work; all gone at the end."""
    etcd = EtcdCluster(folder / "etcd", members, flags=etcd_flags)
    try:
        etcd.start()
        with NodeGroup(etcd.url("robustness"), folder / "nodes") as nodes:
            load = Load(nodes.url, shape, seed=seed)
            with load:
                yield Stage(etcd, nodes, load)
    finally:
        etcd.stop()
