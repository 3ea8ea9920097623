"""Routes: from what happened to those that are notified: the connection of a session, and the watchers."""

from collections.abc import Callable
from typing import Protocol

from fencehold.core.outcomes import Applied, Notice


class Listener(Protocol):
    """Is notified of what happens to a session: a connection."""

    def on_notice(self, notice: Notice, at_ms: int) -> None: ...


class Routes:
    """The listeners by session, and the watchers."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}
        self.watchers: dict[Callable[[], None], None] = {}

    def attach(self, session: int, listener: Listener) -> Listener | None:
        """Route what concerns a session to a listener; returns the one it takes the place of."""
        replaced = self._listeners.get(session)
        self._listeners[session] = listener
        return None if replaced is listener else replaced

    def detach(self, session: int, listener: Listener) -> bool:
        """Undo `attach`, unless another listener has taken its place; says whether it was undone."""
        if self._listeners.get(session) is not listener:
            return False
        del self._listeners[session]
        return True

    def is_attached(self, session: int) -> bool:
        return session in self._listeners

    def watch(self, wake: Callable[[], None]) -> None:
        """Have `wake` called whenever something happened."""
        self.watchers[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        self.watchers.pop(wake, None)

    def tell(self, applied: Applied) -> None:
        """Notify each listener of what an entry did to its session."""
        for _, notice in applied.notices:
            listener = self._listeners.get(notice.session)
            if listener is not None:
                listener.on_notice(notice, applied.at_ms)

    def wake(self) -> None:
        """Wake the watchers: something happened."""
        for wake in tuple(self.watchers):
            wake()
