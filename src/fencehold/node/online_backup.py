"""An online backup: the state of one position, drawn piece by piece while the node keeps serving.

1. It is of durable entries only: it is begun by a question (see `leader`), whose answer comes when the entry that
   it looks at is durable, and nothing of it is shown before that answer.
2. A state has one snapshot under way at a time, this one or the node's own; the second one waits. So there
   is a bound: one that is not drawn from for a while, or takes too long in all, is aborted.
3. A piece costs as much as a slice of a snapshot, a few milliseconds, and has a bound in bytes.
"""

from fencehold.core.snapshot import Snapshot
from fencehold.core.state import State

PIECE_BYTES_MAX = 256 << 10
IDLE_S_MAX = 10.0
TOTAL_S_MAX = 600.0


class OnlineBackup:
    """One backup under way."""

    __slots__ = ("_at", "_begun_at", "_chunk", "_drawn_at", "_snapshot", "fence", "logical_ms", "position")

    def __init__(self, state: State, now: float) -> None:
        """Begin, of the state as it is. No other snapshot of it may be under way."""
        self.position = state.position
        self.fence = state.fence
        self.logical_ms = state.now_at
        self._snapshot = Snapshot(state)
        self._chunk = b""
        self._at = 0
        self._begun_at = self._drawn_at = now

    def piece(self, now: float) -> bytes:
        """The next bytes of the snapshot; empty at its end."""
        self._drawn_at = now
        if self._at == len(self._chunk):
            self._chunk, self._at = next(self._snapshot, b""), 0
        # One session may hold ten thousand names: its slice is larger than a reply should be.
        piece = self._chunk[self._at : self._at + PIECE_BYTES_MAX]
        self._at += len(piece)
        return piece

    def is_overdue(self, now: float) -> bool:
        """Whether it keeps others waiting for too long."""
        return now - self._drawn_at > IDLE_S_MAX or now - self._begun_at > TOTAL_S_MAX

    def close(self) -> None:
        """Let the next snapshot begin. Idempotent; not needed after the last piece."""
        self._snapshot.close()


def begin(now: float, state: State) -> OnlineBackup | None:
    """Begin a backup of a state; None while another snapshot of it is under way."""
    return None if state.saving is not None else OnlineBackup(state, now)
