"""Contests: which contestants are measured, in which order, and what happens when one of them fails.

The rules:

1. Every contestant runs once in every round, and both who goes first and who follows whom change from round to
   round: none always finds the caches cold, the machine just woken, or the disk busy with what another wrote.
2. All of a contest runs on one event loop: what `setup` connects, `round` may use.
3. What was begun is torn down, in reverse, whatever happened; also a `setup` that failed half-way.
4. Every step has a bound. Only what awaits can be held to it.
"""

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from bench import isolated
from bench.musts import Must
from bench.quiet import Quiet
from bench.samples import Figures, Results, Sample, checked

T = TypeVar("T")


class Fixture:
    """Something a contest needs around it, such as a server several contestants talk to.

    Override what is needed; each method may be `async` or not.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def setup(self) -> Awaitable[None] | None:
        """Called once, before any round."""
        return None

    def teardown(self) -> Awaitable[None] | None:
        """Called once if `setup` was, even when that failed: it must cope with what is not there yet."""
        return None


class Contestant(Fixture):
    """One thing that is measured. Override `round`."""

    def __init__(self, name: str, *, reference: str | None = None) -> None:
        """`reference`: the contestant this one's ratios are taken against, if not the contest's."""
        super().__init__(name)
        self.reference = reference

    def round(self) -> Figures | Awaitable[Figures]:
        """Measure once, and return the figures."""
        raise NotImplementedError


class Call(Contestant):
    """A contestant that is one function; with `isolated`, each round calls it in a fresh process.

    Memory is measured isolated: what an earlier round or another contestant allocated is never given back
    whole. The function is then a module's own, and its arguments and figures pass through JSON.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Figures | Awaitable[Figures]],
        arguments: Mapping[str, Any] | None = None,
        *,
        isolated: bool = False,
        reference: str | None = None,
    ) -> None:
        super().__init__(name, reference=reference)
        self.function = function
        self.arguments = dict(arguments or {})
        self.isolated = isolated

    def round(self) -> Figures | Awaitable[Figures]:
        if self.isolated:
            return isolated.call(self.function, self.arguments)
        return self.function(**self.arguments)


@dataclass(frozen=True)
class Contest:
    """Who runs, how often, and what must come out."""

    contestants: Sequence[Contestant]
    rounds: int
    musts: Sequence[Must] = ()
    reference: str | None = None
    """The contestant the table's ratios are taken against, where a contestant names none itself."""
    fixtures: Sequence[Fixture] = ()
    """Set up before the contestants, torn down after them."""
    warmups: int = 1
    """Rounds before the first that leave no samples."""
    step_timeout_s: float = 300.0
    """The bound on each setup, each turn in a round, and each teardown."""

    def __post_init__(self) -> None:
        names = [contestant.name for contestant in self.contestants]
        if self.rounds < 1 or self.warmups < 0 or not names:
            raise ValueError("a contest has at least one contestant and one round")
        if len(set(names)) < len(names):
            raise ValueError(f"two contestants have the same name: {', '.join(names)}")
        for reference in (self.reference, *(contestant.reference for contestant in self.contestants)):
            if reference is not None and reference not in names:
                raise ValueError(f"the reference {reference!r} is no contestant; there are: {', '.join(names)}")

    def references(self) -> dict[str, str]:
        """The reference of each contestant; those without one are left out."""
        chosen = ((each.name, each.reference or self.reference) for each in self.contestants)
        return {name: reference for name, reference in chosen if reference not in (None, name)}

    def turns(self) -> int:
        """How many turns the whole contest takes, warm-ups included."""
        return len(self.contestants) * (self.warmups + self.rounds)


@dataclass(frozen=True)
class Benchmark:
    """What a module of benchmarks defines as `BENCHMARK`."""

    name: str
    """The module's own name."""
    doc: str
    """One line."""
    build: Callable[[bool], Contest]
    """Called with `quick`: a short form of the contest that still judges its musts."""
    draw: Callable[[Any], str] | None = None
    """Called with the report: an SVG of it, to be written beside its figures."""


@dataclass(frozen=True)
class Family:
    """Several benchmarks by one name: all of them are run, or those that `--only` names."""

    name: str
    """The module's own name."""
    doc: str
    """One line."""
    members: Mapping[str, Benchmark]


class Watcher(Protocol):
    """Is informed of the progress of a contest. Never called while something is measured."""

    def note(self, text: str) -> None:
        """This begins now."""

    def advance(self) -> None:
        """One turn is over."""


class StepFailed(Exception):
    """A contestant or fixture failed; `__cause__` is what it raised."""

    def __init__(self, name: str, step: str) -> None:
        super().__init__(f"{name!r} failed in {step}")


class ContestFailed(Exception):
    """The contest gave no results. Everything begun has been torn down."""

    def __init__(self, failures: Sequence[StepFailed]) -> None:
        super().__init__("; ".join(str(failure) for failure in failures))
        self.failures = tuple(failures)


def order(contestants: Sequence[Contestant], number: int) -> list[Contestant]:
    """The order of a round: each starts one contestant further on, and continues in steps of 1, -2, 3, -4, …

    So over as many rounds as there are contestants, each has every place once; and with an even number of
    them, each comes once right after each of the others. With an odd one that takes twice as many rounds.
    """
    many = len(contestants)
    cycle, first = divmod(number - 1, many)
    places = [-(step // 2) if step % 2 == 0 else step // 2 + 1 for step in range(many)]
    turns = [contestants[(first + place) % many] for place in places]
    return turns[::-1] if many % 2 and cycle % 2 else turns


async def run(contest: Contest, watcher: Watcher) -> Results:
    """Set up, run every round, tear down.

    Raises:
        ContestFailed: a step failed, in `failures` with whatever failed after it in tearing down.
    """
    results = Results()
    begun: list[Fixture] = []
    failures: list[StepFailed] = []
    try:
        await _set_up(contest, begun, watcher)
        await _measure(contest, results, watcher)
    except StepFailed as failure:
        failures.append(failure)
    finally:
        failures += await _tear_down(contest, begun, watcher)
    if failures:
        raise ContestFailed(failures)
    return results


async def _set_up(contest: Contest, begun: list[Fixture], watcher: Watcher) -> None:
    for fixture in (*contest.fixtures, *contest.contestants):
        watcher.note(f"setting up {fixture.name}")
        begun.append(fixture)
        await _step(contest, fixture, "setup", _settled(fixture.setup))


async def _measure(contest: Contest, results: Results, watcher: Watcher) -> None:
    quiet = Quiet()
    await quiet.learn()
    for number in range(1 - contest.warmups, contest.rounds + 1):
        step = f"round {number} of {contest.rounds}" if number > 0 else "warm-up"
        for place, contestant in enumerate(order(contest.contestants, number), 1):
            watcher.note(f"{step}: {contestant.name}")
            # No contestant pays for the garbage of the one before, nor for what it left the servers to do.
            gc.collect()
            await quiet.come()
            figures = await _step(contest, contestant, step, _figures(contestant))
            if number > 0:
                results.samples.append(Sample(number, place, contestant.name, figures))
            watcher.advance()


async def _figures(contestant: Contestant) -> Figures:
    return checked(await _settled(contestant.round))


async def _tear_down(contest: Contest, begun: list[Fixture], watcher: Watcher) -> list[StepFailed]:
    failures = []
    for fixture in reversed(begun):
        watcher.note(f"tearing down {fixture.name}")
        try:
            await _step(contest, fixture, "teardown", _settled(fixture.teardown))
        except StepFailed as failure:
            failures.append(failure)
    return failures


async def _step(contest: Contest, fixture: Fixture, step: str, action: Awaitable[T]) -> T:
    bound = asyncio.timeout(contest.step_timeout_s)
    try:
        async with bound:
            return await action
    except Exception as error:
        if bound.expired():
            error.add_note(f"took longer than {contest.step_timeout_s:g} s")
        raise StepFailed(fixture.name, step) from error


async def _settled(action: Callable[[], Awaitable[T] | T]) -> T:
    outcome = action()
    return await outcome if inspect.isawaitable(outcome) else outcome
