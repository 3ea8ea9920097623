"""The benchmark of wild clients: how it talks to its processes, what it counts, what it judges."""

import os
import time
from pathlib import Path

import pytest

from bench import abuse, neighbour, wild, wild_principal
from bench.children import ChildFailed, Talk, running
from bench.contest import Contest
from bench.samples import Results, Sample

MUCH = 100_000


async def echo(talk: Talk, greeting: str) -> None:
    """A child that says everything back, until it is told to fail."""
    talk.say(said=greeting)
    while (word := await talk.word()) != "fail":
        talk.say(said=word * MUCH if word == "much" else word)
    raise ValueError("told to")


async def test_a_child_answers_a_line_with_a_line(tmp_path: Path) -> None:
    """It speaks first, then answers; and it is gone when its context is."""
    async with running("echo", echo, tmp_path, greeting="hello") as child:
        assert await child.hear() == {"said": "hello"}
        assert await child.ask("again") == {"said": "again"}
        # As long as what a client tells of a stretch of minutes.
        assert await child.ask("much") == {"said": "much" * MUCH}
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    """Its last words are in the error."""

    async def scenario() -> None:
        async with running("echo", echo, tmp_path, greeting="hello") as child:
            await child.hear()
            await child.ask("fail")

    with pytest.raises(ChildFailed, match="told to"):
        await scenario()


def test_what_is_still_under_way_counts() -> None:
    """An operation that was not answered in a stretch has taken at least that long."""
    client = neighbour.Neighbour(0.0)
    client._under_way[1] = time.perf_counter_ns() - 5_000_000_000
    client._under_way[2] = time.perf_counter_ns()
    assert [latency_ns >= 5_000_000_000 for latency_ns in client.seen()["latencies_ns"]] == [True]


def test_figures_are_of_the_slowest_too() -> None:
    """The longest wait is the longest, however many were short."""
    figures = neighbour.figures([1_000_000] * 99 + [500_000_000])
    assert figures == {"p50_ms": 1.0, "p99_ms": 1.0, "longest_ms": 500.0}


def test_every_kind_has_its_phase_at_every_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them by default; some, by parts of their names, if so asked."""
    monkeypatch.delenv("BENCH_PHASES", raising=False)
    assert len(abuse.build(True).contestants) == 2 * len(wild.KINDS) + len(wild_principal.KINDS)
    monkeypatch.setenv("BENCH_PHASES", "etcd: random; etcd: mutated")
    assert [each.name for each in abuse.build(True).contestants] == ["etcd: mutated frames", "etcd: random bytes"]


GOOD = {
    "p99_times": 2.0,
    "longest_times": 1.0,
    "quiet_s": 1.0,
    "peak_mb": 256.0,
    "refused": 0,
    "lost": 0,
    "ended": 0,
}


@pytest.mark.parametrize("worse", ["", *GOOD])
def test_a_phase_is_held_against_every_bar(monkeypatch: pytest.MonkeyPatch, worse: str) -> None:
    """On the bars it is met; beyond any of them one must is missed."""
    monkeypatch.setenv("BENCH_PHASES", "embedded: random")
    contest: Contest = abuse.build(True)
    figures = {name: value + 100 * (name == worse) for name, value in GOOD.items()}
    results = Results([Sample(1, 1, contest.contestants[0].name, figures)])
    missed = [must for must in contest.musts if not must.judge(results).met]
    assert len(missed) == bool(worse)
