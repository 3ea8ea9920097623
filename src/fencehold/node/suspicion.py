"""Suspicion: a standby's failure detector for its leader. It is fed with what was seen and `now`, in seconds.

Taking over too early is harmless: the old leader is sealed, and silent. It only costs every client a new
connection. So detection may be fast, but should not be nervous:

1. *The leader said goodbye*: at once.
2. *The connection to it broke and it takes no other*: at once if it had taken one before; otherwise the address
   may be wrong, so not before the journal was silent for longer than a living leader lets it be.
3. *Nothing was heard, neither an entry nor an answer on the line*, for the leader timeout.
4. *No entry came for several leader timeouts*, though the line answers: it cannot write.
5. *Standbys do not run into one another*: each waits longer by its rank among them, which the leader told it.
6. *No leader announced itself yet, or the one that did was this node*: at once.
7. A standby that was asleep itself counts anew: the silence may have been its own.
8. *Another has taken the next epoch and written nothing yet*: it gets the leader timeout to begin, whatever is
   known of the leader before it; and twice as long after each epoch that was taken in vain. Otherwise nodes that
   take over while the engine is slow would seal one another, and none would come to write.
"""

from math import inf
from typing import NamedTuple


class Patience(NamedTuple):
    """How long silence may last. A leader writes an entry every `tick_s` (0.2 s) at the latest."""

    leader_timeout_s: float = 1.0
    stuck_factor: int = 3
    """A leader that answers but writes nothing gets so many leader timeouts."""
    confirm_s: float = 0.5
    """Silence of the journal that makes a line that was never had a reason."""
    stagger_s: float = 0.25
    """Between one standby's turn and the next one's: more than a take-over takes."""
    asleep_s: float = 0.5
    """A look at the clock that is so much too late means that this process was stopped."""
    taking_factor_max: int = 4
    """A node that took an epoch gets at most so many leader timeouts to write: the calls that it takes, at their
    slowest, have ended by then."""


class Suspicion:
    """What one standby thinks of one leader."""

    def __init__(self, patience: Patience, now: float, *, rank: int = 1, vain_epochs: int = 0) -> None:
        self._patience = patience
        self._rank = rank
        """Before the leader told it, it lets one go first."""
        self._vain_epochs = vain_epochs
        """Epochs taken since the last entry was written."""
        self.count_anew(now)

    @property
    def awaits_taker(self) -> bool:
        """Whether another node has taken an epoch, and is to write under it."""
        return self._vain_epochs > 0

    def start_over(self, now: float) -> None:
        """There is another leader: what was seen of the one before says nothing about it."""
        self._vain_epochs = 0
        self.count_anew(now)

    def count_anew(self, now: float) -> None:
        """Count silence from now on: what was seen before does not count."""
        self._entry_at = self._heard_at = now
        self._was_heard = False
        self._broken_at = inf
        self._gone_at = inf

    def on_entry(self, now: float) -> None:
        """The journal has a new entry: its writer is alive, whatever the line says."""
        self._entry_at = now
        self._broken_at = inf

    def on_heard(self, now: float, rank: int) -> None:
        """The leader answered on the line."""
        self._heard_at = now
        self._was_heard = True
        self._rank = rank
        self._broken_at = inf

    def on_broken(self, now: float) -> None:
        """The connection is lost and cannot be made again."""
        self._broken_at = min(self._broken_at, now)

    def on_goodbye(self, now: float) -> None:
        """The leader stopped, or does not lead any more, or never did."""
        self._gone_at = min(self._gone_at, now)

    def due_at(self) -> float:
        """When to take over, as things stand."""
        patience = self._patience
        timeout_s = patience.leader_timeout_s
        if self.awaits_taker:
            factor = min(1 << (self._vain_epochs - 1), patience.taking_factor_max)
            return self._entry_at + timeout_s * factor + self._rank * patience.stagger_s
        reasons = (
            self._gone_at,
            self._broken_at if self._was_heard else max(self._broken_at, self._entry_at + patience.confirm_s),
            max(self._entry_at, self._heard_at) + timeout_s,
            self._entry_at + timeout_s * patience.stuck_factor,
        )
        return min(reasons) + self._rank * patience.stagger_s

    def vouches(self, now: float) -> bool:
        """Whether the leader was heard from so recently that clients may be sent to it."""
        silent_s = now - max(self._entry_at, self._heard_at)
        return self._gone_at > now and not self.awaits_taker and silent_s < self._patience.leader_timeout_s / 2

    def was_asleep(self, due_at: float, now: float) -> bool:
        """Whether this node noticed so late that it was due, that it must have been stopped itself."""
        return now - due_at > self._patience.asleep_s
