"""Contestants that measure nothing: they tell what they were given, and write down when they were called."""

from collections.abc import Iterator, Sequence

from bench.contest import Contestant, Fixture
from bench.samples import Figures, Results, Sample


class Boom(Exception):
    """What a failing fake raises."""


class Fake(Contestant):
    """Gives the figures it was made with, round after round; `fails_in` names the step that raises."""

    def __init__(
        self,
        name: str,
        log: list[str],
        rounds: Sequence[Figures] = ({"ops_per_s": 1.0},),
        fails_in: str = "",
        reference: str | None = None,
    ) -> None:
        super().__init__(name, reference=reference)
        self.log = log
        self.fails_in = fails_in
        self.left: Iterator[Figures] = iter(rounds)
        self.last: Figures = {}

    def setup(self) -> None:
        self._do("setup")

    def round(self) -> Figures:
        self._do("round")
        self.last = next(self.left, self.last)
        return self.last

    def teardown(self) -> None:
        self._do("teardown")

    def _do(self, step: str) -> None:
        self.log.append(f"{step} {self.name}")
        if step == self.fails_in:
            raise Boom(f"{self.name} cannot {step}")


class AsyncFake(Contestant):
    """A contestant all of whose steps are coroutines."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__(name)
        self.log = log

    async def setup(self) -> None:
        self.log.append(f"setup {self.name}")

    async def round(self) -> Figures:
        self.log.append(f"round {self.name}")
        return {"ops_per_s": 2}

    async def teardown(self) -> None:
        self.log.append(f"teardown {self.name}")


class FakeServer(Fixture):
    """A fixture that only writes down when it was called."""

    def __init__(self, log: list[str]) -> None:
        super().__init__("server")
        self.log = log

    def setup(self) -> None:
        self.log.append("setup server")

    def teardown(self) -> None:
        self.log.append("teardown server")


class Quiet:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.turns_done = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def advance(self) -> None:
        self.turns_done += 1


def results(**series: Sequence[float]) -> Results:
    """Results with one figure, `ops_per_s`, of each contestant by round."""
    samples = [
        Sample(number, 1, contestant, {"ops_per_s": value})
        for contestant, values in series.items()
        for number, value in enumerate(values, 1)
    ]
    return Results(samples)
