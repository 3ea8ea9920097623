"""Saving: a snapshot under way, and what it must keep of a state that goes on changing.

A snapshot is of one position, yet it is written in slices between which entries are applied. So the little that
hangs on no session is copied when it starts; a session is copied, without its holds, just before it first changes;
and a hold is kept when it is taken out. Holds granted later are known by their fences: they are greater.
"""

from operator import attrgetter

from msgspec import Struct

from fencehold.core.outcomes import Answer
from fencehold.core.state import Hold, Kept, Session, State, Waiter

_FENCE_AND_NAME = attrgetter("fence", "name")


class SessionImage(Struct, frozen=True, gc=False, array_like=True):
    """A session as it was, without its holds."""

    id: int
    ttl_ms: int
    grace_ms: int
    secret: str
    meta: str
    opened_at: int
    opened_fence: int
    latest: int
    answered: int
    waiters: list[Waiter]
    answers: list[tuple[int, Answer]]
    final_answers: list[tuple[int, Answer]]
    lapsed: list[tuple[int, str]]


class OwnedImage(SessionImage, frozen=True, gc=False, array_like=True):
    """What is written of a session with a principal; one without has the bytes it always had."""

    principal: str = ""


class TokenImage(OwnedImage, frozen=True, gc=False, array_like=True):
    """What is written of a session that was opened with a token."""

    token: str = ""


SavedSession = tuple[SessionImage, int, list[Hold]]
"""A session, when it ends unless renewed, and its holds by fence."""


def image_of(session: Session) -> SessionImage:
    """Copy what may change."""
    fields = (
        session.id,
        session.ttl_ms,
        session.grace_ms,
        session.secret,
        session.meta,
        session.opened_at,
        session.opened_fence,
        session.latest,
        session.answered,
        list(session.waiters.values()),
        list(session.answers.items()),
        list(session.final_answers.items()),
        list(session.lapsed),
    )
    if session.token:
        return TokenImage(*fields, session.principal, session.token)
    return OwnedImage(*fields, session.principal) if session.principal else SessionImage(*fields)


class Saving:
    """What a snapshot under way has still to write, as it was when it started."""

    __slots__ = (
        "_fence",
        "_holds",
        "_images",
        "_sessions",
        "_todo",
        "_until",
        "has_cells",
        "has_home",
        "has_map",
        "has_notes",
        "has_principals",
        "kept",
    )

    def __init__(self, state: State) -> None:
        self._sessions = state.sessions
        self._fence = state.fence
        self.kept: list[Kept] = list(state.kept.values())
        self.has_home = state.home is not None
        self.has_cells = state.cells is not None
        self.has_notes = state.noted > 0
        self.has_map = state.placed is not None
        self.has_principals = bool(state.policy.revision or state.owned)
        self._until = state.sessions_until.copy()
        # The newest first: taking from the end is cheap, and sessions are written from the oldest to the newest.
        self._todo = dict.fromkeys(reversed(state.sessions))
        self._images: dict[int, SessionImage] = {}
        self._holds: dict[int, dict[tuple[int, str], Hold]] = {}

    def keep_session(self, session: Session) -> None:
        """Called before the session changes; only the first time counts."""
        if session.id in self._todo and session.id not in self._images:
            self._images[session.id] = image_of(session)

    def keep_hold(self, hold: Hold) -> None:
        """Called before the hold is taken out or replaced; only the first time counts."""
        if hold.fence <= self._fence and hold.session in self._todo:
            self._holds.setdefault(hold.session, {}).setdefault((hold.fence, hold.name), hold)

    def next_session(self) -> SavedSession | None:
        """The next session to write; None at the end."""
        if not self._todo:
            return None
        session_id, _ = self._todo.popitem()
        image = self._images.pop(session_id, None)
        if image is None:
            image = image_of(self._sessions[session_id])
        return image, self._until.pop(session_id), self._holds_of(session_id)

    def _holds_of(self, session_id: int) -> list[Hold]:
        kept = self._holds.pop(session_id, {})
        holds = list(kept.values())
        session = self._sessions.get(session_id)
        if session is not None:
            now = session.all_holds()
            # What was put in the place of a kept hold has its fence too, and is not what was there then.
            holds += [h for h in now if h.fence <= self._fence and not (kept and (h.fence, h.name) in kept)]
        return sorted(holds, key=_FENCE_AND_NAME)
