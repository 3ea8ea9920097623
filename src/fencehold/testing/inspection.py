"""Inspecting a test service: the same for both kinds of tests, since nothing here waits for a client."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from fencehold.client.driver import Driver
from fencehold.locks.views import Explanation, Holder, Waiting
from fencehold.testing.background import background
from fencehold.testing.clients import AnyClient, driver_of
from fencehold.testing.history import Held
from fencehold.testing.stage import Drivers, Stage

Result = TypeVar("Result")


class AnyHold(Protocol):
    """A hold of either client."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def fence(self) -> int: ...


class Seen:
    """A service that can be inspected."""

    def _here(self) -> Stage:
        raise NotImplementedError

    @property
    def url(self) -> str:
        """Where to connect to; also for code that creates its own client."""
        return self._here().url

    def explain(self, name: str) -> Explanation:
        """Who holds a name, since when, and who waits for it."""
        return background.submit(self._here().explain(name)).result()

    def holders(self, name: str) -> tuple[Holder, ...]:
        """Who holds a name now, by fence."""
        return self.explain(name).holders

    def waiters(self, name: str) -> tuple[Waiting, ...]:
        """Who waits for a name now, the next one first."""
        return self.explain(name).queue

    def history(self, name: str) -> list[Held]:
        """Every hold there was on a name, by fence."""
        return self._look(lambda stage: stage.history.of(name))

    def assert_no_overlap(self) -> None:
        """Check that no other hold on a name ever overlapped an exclusive one.

        Raises:
            AssertionError: it was; the message says by whom, when and with which fences.
        """
        overlaps = self._look(lambda stage: stage.history.overlaps())
        if overlaps:
            said = [f"{first.name!r}: {first}; {second}" for first, second in overlaps]
            raise AssertionError("\n".join(["held at the same time:", *said]))

    def _look(self, question: Callable[[Stage], Result]) -> Result:
        stage = self._here()

        async def asked() -> Result:
            return question(stage)

        return background.submit(asked()).result()

    def _drivers(self, clients: tuple[AnyClient | str, ...]) -> Drivers:
        return frozenset(map(self._driver, clients)) if clients else None

    def _driver(self, client: AnyClient | str) -> Driver:
        return self._here().named(client) if isinstance(client, str) else driver_of(client)
