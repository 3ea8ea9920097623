"""Things that are shared by name, for as long as one user of the name is there."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Shared(Generic[T]):
    """One thing, found by its name while this is referenced.

    The thing itself is not referenced weakly: instances of compiled classes cannot be.
    """

    __slots__ = ("__weakref__", "thing")

    def __init__(self, thing: T) -> None:
        self.thing = thing


class SharedThings(Generic[T]):
    """Things by name. A thing without a name is not shared."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._known: WeakValueDictionary[str, Shared[T]] = WeakValueDictionary()

    def of(self, name: str) -> Shared[T]:
        """What belongs to a name, made if there is nothing yet."""
        shared = self._known.get(name) if name else None
        if shared is None:
            shared = Shared(self._make())
            if name:
                self._known[name] = shared
        return shared
