"""Incidents: what of all that happens is worth a line in the server's log, with names and principals.

Every kind has a bound of its own, kept by the `Teller` that the SDK's log has, too: a thousand holds that expire
at once are ten lines and a word of how many were left out.
"""

import logging
from typing import Any

from fencehold.locks.log import Teller
from fencehold.observe.facts import Fact, What
from fencehold.observe.history.recorder import read_who, who_of

SLOW_APPEND_S = 0.5
_NAMES_SHOWN = 5
_PREFIX = "fencehold.server."
KINDS = ("expired", "session_lost", "deadlock", "denied", "limit", "late", "slow_append")
_LIMITS = {"limit", "queue_full"}
_GRANTED, _RELEASED = What.GRANTED, What.RELEASED


class Incidents:
    """What is told of one machine."""

    def __init__(
        self,
        sessions: dict[int, str] | None = None,
        *,
        slow_append_s: float = SLOW_APPEND_S,
        tellers: dict[str, Teller] | None = None,
        shard: int | None = None,
    ) -> None:
        """`tellers`: shared by all machines of a server, as their bound is. `shard`: None if there is only one."""
        self._sessions = sessions if sessions is not None else {}
        """Who each session is, as `who_of` says it."""
        self._slow_append_s = slow_append_s
        self._tellers = tellers_of_kinds() if tellers is None else tellers
        self._place = {} if shard is None else {"shard": shard}

    def know(self, sessions: dict[int, str]) -> None:
        """These sessions live, and are these clients."""
        self._sessions.clear()
        self._sessions.update(sessions)

    def on_facts(self, facts: list[Fact], *, is_told: bool) -> None:
        """Something became durable; it is told by the node that leads."""
        for fact in facts:
            if fact.what is _GRANTED or fact.what is _RELEASED:
                continue
            handler = _HANDLERS.get(fact.what)
            if handler is not None and (is_told or handler is Incidents._opened):
                handler(self, fact)
            elif fact.what is What.SESSION_ENDED:
                self._sessions.pop(fact.session, None)

    def on_append(self, seconds: float) -> None:
        if seconds >= self._slow_append_s:
            self._tell("slow_append", logging.WARNING, {"took_s": round(seconds, 3)})

    # Each kind.

    def _opened(self, fact: Fact) -> None:
        self._sessions[fact.session] = who_of(fact.detail, fact.more)

    def _hold_ended(self, fact: Fact) -> None:
        if fact.detail == "expired" and self._would_tell("expired", logging.WARNING):
            facts = {"name": fact.names[0], "fence": fact.fence, **self._who(fact.session, fact.owner)}
            self._tell("expired", logging.WARNING, facts)

    def _session_ended(self, fact: Fact) -> None:
        holds, tickets, meta = fact.more
        if fact.detail != "released":
            names = [name for name, _ in holds]
            facts = {
                **self._who(fact.session, "", meta),
                "reason": fact.detail,
                "holds": len(holds),
                "waits": len(tickets),
                "names": _listed(names),
            }
            level = logging.WARNING if holds else logging.INFO
            self._tell("session_lost", level, facts)
        self._sessions.pop(fact.session, None)

    def _wait_ended(self, fact: Fact) -> None:
        if fact.detail == "deadlock":
            self._deadlock(fact)

    def _deadlock(self, fact: Fact) -> None:
        circle = " → ".join(
            f"{owner or f'session {session}'} waits for {name}" if session else owner
            for session, owner, name in fact.more
        )
        facts = {"name": _listed(fact.names), **self._who(fact.session, fact.owner), "circle": circle}
        self._tell("deadlock", logging.WARNING, facts)

    def _refused(self, fact: Fact) -> None:
        operation, why = fact.more
        kind = "denied" if fact.detail == "denied" else "limit" if fact.detail in _LIMITS else ""
        if kind:
            facts = {"op": operation, "name": _listed(fact.names), **self._who(fact.session), "why": why}
            self._tell(kind, logging.WARNING, facts)

    def _release_refused(self, fact: Fact) -> None:
        if fact.detail == "expired":
            facts = {"name": _listed(fact.names), "fence": fact.fence, **self._who(fact.session)}
            note = "released after it had been lost: its holder went on without it"
            self._tell("late", logging.WARNING, {**facts, "note": note})

    def _who(self, session: int, owner: str = "", meta: str = "") -> dict[str, Any]:
        who = self._sessions.get(session) or who_of(meta, "")
        client, host, pid, principal = read_who(who)
        described = (
            (client or f"session {session}") + (f" on {host}" if host else "") + (f" (pid {pid})" if pid else "")
        )
        facts: dict[str, Any] = {"client": described, "session": session}
        if principal:
            facts["principal"] = principal
        if owner:
            facts["owner"] = owner
        return facts

    def _would_tell(self, kind: str, level: int) -> bool:
        """Whether a line would be written. One that is left out is counted, and costs no more than that."""
        teller = self._tellers[kind]
        if teller.would_tell(level):
            return True
        teller.tell(level, kind, facts={})
        return False

    def _tell(self, kind: str, level: int, facts: dict[str, Any]) -> None:
        self._tellers[kind].tell(level, kind, facts={**facts, **self._place})


def tellers_of_kinds() -> dict[str, Teller]:
    """One for each kind of incident."""
    return {kind: Teller(_PREFIX + kind) for kind in KINDS}


def _listed(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


_HANDLERS = {
    What.OPENED: Incidents._opened,
    What.HOLD_ENDED: Incidents._hold_ended,
    What.SESSION_ENDED: Incidents._session_ended,
    What.DEADLOCK: Incidents._deadlock,
    What.WAIT_ENDED: Incidents._wait_ended,
    What.REFUSED: Incidents._refused,
    What.RELEASE_REFUSED: Incidents._release_refused,
}
