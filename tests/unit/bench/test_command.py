"""The command line: what it runs, writes and exits with."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from bench import registry
from bench.__main__ import Surroundings, main
from bench.contest import Benchmark, Contest, Family
from bench.musts import at_least, median
from tests.unit.bench.fakes import Fake


@dataclass
class Bench:
    """The command in a box: its benchmarks are modules that exist only here."""

    monkeypatch: pytest.MonkeyPatch
    around: Surroundings

    def add(self, name: str, build: Callable[[bool], Contest]) -> None:
        module = ModuleType(f"boxed.{name}")
        module.__dict__["BENCHMARK"] = Benchmark(name, f"Measures {name}.", build)
        self.monkeypatch.setitem(sys.modules, module.__name__, module)
        self.around = replace(self.around, modules=(*self.around.modules, module.__name__))

    def run(self, *argv: str, **env: str) -> int:
        return main(argv, replace(self.around, env=env))

    def out(self) -> str:
        return written(self.around.out)

    def err(self) -> str:
        return written(self.around.err)

    def result(self, name: str) -> dict[str, object]:
        loaded = json.loads((self.around.results / f"{name}.json").read_text())
        assert isinstance(loaded, dict)
        return loaded


def written(console: Console) -> str:
    """What a console that writes to memory was given."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """A command without benchmarks."""
    monkeypatch.setitem(sys.modules, "boxed", ModuleType("boxed"))
    out, err = (Console(file=io.StringIO(), width=200) for _ in range(2))
    at = datetime(2026, 1, 2, tzinfo=UTC)
    return Bench(monkeypatch, Surroundings((), tmp_path / "results", at, {}, out, err))


def contest(bar: float, rounds: int = 1) -> Contest:
    """One contestant that does 10 a second, and the must to reach the bar."""
    fake = Fake("ours", [], rounds=[{"ops_per_s": 10}])
    return Contest([fake], rounds, musts=[at_least("speed", median("ours", "ops_per_s"), bar, "ops/s")])


def test_a_met_must_exits_0_and_leaves_the_figures(bench: Bench) -> None:
    """The table, the file and the must's line are all there."""
    bench.add("door", lambda quick: contest(bar=10))
    assert bench.run("door") == 0
    assert bench.out().startswith("door (medians of 1 round)")
    assert bench.out().endswith("must speed: 10.00 ops/s (at least 10 ops/s): met\n")
    assert bench.result("door")["date"] == "2026-01-02T00:00:00+00:00"
    assert "round 1 of 1: ours" in bench.err()


def test_a_missed_must_exits_1_and_still_leaves_the_figures(bench: Bench) -> None:
    """Missing is told, not hidden."""
    bench.add("door", lambda quick: contest(bar=11))
    assert bench.run("door") == 1
    assert "(at least 11 ops/s): missed" in bench.out()
    assert bench.result("door")["musts"]


@pytest.mark.parametrize(
    ("argv", "env", "quick"),
    [
        ([], {}, False),
        (["--quick"], {}, True),
        ([], {"QUICK": "1"}, True),
        ([], {"QUICK": "0"}, False),
        ([], {"QUICK": ""}, False),
    ],
)
def test_quick_runs_the_short_form_and_judges(
    bench: Bench, argv: list[str], env: dict[str, str], quick: bool
) -> None:
    """The flag and the variable both reach the benchmark, and its musts still fail the run."""
    bench.add("door", lambda quick: contest(bar=11, rounds=1 if quick else 5))
    assert bench.run("door", *argv, **env) == 1
    assert bench.result("door")["quick"] is quick
    assert bench.result("door")["rounds"] == (1 if quick else 5)


def test_an_unknown_name_exits_2_and_lists_the_known_ones(bench: Bench) -> None:
    """A typing error costs one line."""
    bench.add("door", lambda quick: contest(bar=1))
    assert bench.run("dor") == 2
    assert bench.err() == "bench: no benchmark 'dor'; there are: door, all\n"


def test_an_unknown_option_exits_2(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Usage errors have their own exit code."""
    with pytest.raises(SystemExit) as exited:
        bench.run("--fast")
    assert exited.value.code == 2
    assert "--fast" in capsys.readouterr().err


def test_without_a_name_the_benchmarks_are_listed(bench: Bench) -> None:
    """One line each; a module that cannot be imported hides no other."""
    bench.add("door", lambda quick: contest(bar=1))
    bench.around = replace(bench.around, modules=("boxed.missing", *bench.around.modules))
    assert bench.run() == 0
    missing, door = bench.out().splitlines()
    assert missing.startswith("missing  cannot be loaded: No module named 'boxed.missing'")
    assert door == "door     Measures door."


def test_a_failing_contestant_is_reported_and_exits_1(bench: Bench) -> None:
    """The traceback, then who and where; everything was torn down, and no figures were written."""
    log: list[str] = []
    bench.add("door", lambda quick: Contest([Fake("ours", log, fails_in="round")], rounds=1))
    assert bench.run("door") == 1
    assert "Traceback" in bench.err()
    assert "Boom: ours cannot round" in bench.err()
    assert bench.err().endswith("bench door: 'ours' failed in warm-up\n")
    assert log[-1] == "teardown ours"
    assert not bench.around.results.exists()


def test_a_benchmark_that_cannot_be_built_exits_1(bench: Bench) -> None:
    """A broken benchmark is reported like a failing contestant, not raised."""
    bench.add("door", lambda quick: Contest([], rounds=1))
    assert bench.run("door") == 1
    assert "ValueError: a contest has at least one contestant" in bench.err()
    assert bench.err().endswith("bench door: cannot be run\n")


def test_all_runs_every_benchmark_after_a_failure_too(bench: Bench) -> None:
    """One failure fails the whole, and hides nothing."""
    bench.add("broken", lambda quick: Contest([Fake("x", [], fails_in="setup")], rounds=1))
    bench.add("door", lambda quick: contest(bar=10))
    assert bench.run("all") == 1
    assert bench.result("door")["medians"] == {"ours": {"ops_per_s": 10}}


def test_a_benchmark_is_named_like_its_module(bench: Bench) -> None:
    """What is typed, listed and written is one name."""
    bench.add("door", lambda quick: contest(bar=1))
    sys.modules["boxed.door"].__dict__["BENCHMARK"] = Benchmark("gate", "", lambda quick: contest(bar=1))
    with pytest.raises(TypeError, match="named 'door'"):
        registry.load("door", bench.around.modules)


def test_the_machine_benchmark_is_registered() -> None:
    """`python -m bench machine` is known."""
    assert "machine" in registry.names(registry.MODULES)


def family(bench: Bench) -> None:
    """A benchmark of two parts, of which one draws a picture."""
    parts = {"left": None, "right": lambda report: f"<svg>{report.benchmark.name}</svg>"}
    members = {
        part: Benchmark(f"pair-{part}", "A part.", lambda quick: contest(bar=10), draw)
        for part, draw in parts.items()
    }
    bench.add("pair", lambda quick: contest(bar=10))
    sys.modules["boxed.pair"].__dict__["BENCHMARK"] = Family("pair", "Two.", members)


def test_all_parts_of_a_family_run_or_those_asked_for(bench: Bench) -> None:
    """Each leaves files of its own, with a picture if it draws one."""
    family(bench)
    assert bench.run("pair", "--only", "left") == 0
    assert {path.name for path in bench.around.results.iterdir()} == {"pair-left.json"}
    assert bench.run("pair") == 0
    assert (bench.around.results / "pair-right.svg").read_text() == "<svg>pair-right</svg>"
    assert "a picture of it: " in bench.out()


def test_a_part_that_is_not_there_is_a_usage_error(bench: Bench) -> None:
    """The parts there are are named; a benchmark that has none says so."""
    family(bench)
    bench.add("door", lambda quick: contest(bar=10))
    assert bench.run("pair", "--only", "middle") == 2
    assert "bench pair: no part 'middle'; there are: left, right" in bench.err()
    assert bench.run("door", "--only", "left") == 2
    assert "bench door: no part 'left': it has no parts" in bench.err()
