"""The contest on clusters: who is compared with whom, and where loads are sent."""

import os

from bench import cluster
from bench.cluster import OnCluster
from bench.contest import order
from bench.samples import Results, Sample

GIVEN = {"ops_per_s": 1.0, "times_the_put": 1.0, "acquire_p50_us": 1.0}


def where(endpoint: str) -> dict[str, float]:
    """A load that tells where it was sent, and that it has a process of its own."""
    return {"port": float(endpoint.rpartition(":")[2]), "pid": os.getpid()}


def test_every_must_has_its_figure() -> None:
    """No must is missed for want of a contestant or a figure by that name."""
    contest = cluster.build(quick=True)
    samples = [Sample(1, 1, each.name, GIVEN) for each in order(contest.contestants, 1)]
    verdicts = [must.judge(Results(samples)) for must in contest.musts]
    assert [verdict.problem for verdict in verdicts] == [""] * len(contest.musts)


def test_every_shape_is_compared_with_both_peers() -> None:
    """Fencehold with etcd's Lock API, and kazoo with Fencehold, in the same shape."""
    references = cluster.build(quick=True).references()
    for shape in ("1x1", "64x1", "256x1", "1x256"):
        assert references[f"SDK {shape}"] == f"etcd Lock API {shape}"
        assert references[f"kazoo {shape}"] == f"SDK {shape}"


async def test_a_load_is_told_anew_in_each_round_where_to_go() -> None:
    """The member that leads may be another by then."""
    endpoints = iter(["127.0.0.1:1", "127.0.0.1:2"])
    load = OnCluster("a load", where, lambda: {"endpoint": next(endpoints)})

    first, second = [await load.round(), await load.round()]
    assert (first["port"], second["port"]) == (1, 2)
    assert len({first["pid"], second["pid"], os.getpid()}) == 3
