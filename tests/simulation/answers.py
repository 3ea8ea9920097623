"""Answers: each that left a node must be explained by an entry that was durable by then (G3, G10).

What was said without an explanation by a node that a newer epoch had sealed breaks G10: a sealed leader is silent.
Said by the newest leader, it breaks G3: answered means durable. What a sealed leader says of entries that were
durable before it was sealed is true, and harms nobody.
"""

from bisect import bisect_right
from typing import Any

import hiredis

from tests.simulation.store import Led
from tests.simulation.story import Story, Violation
from tests.simulation.wire import Said

NO_ANSWER = ("UNAVAILABLE", "NOTLEADER", "UNKNOWN", "USAGE", "LIMIT", "BUSY", "ERR", "DENIED", "NOAUTH")
"""Codes that say nothing happened, or that it is not known."""

_LATER = 1 << 62


class Answers:
    """Judges what was said by a story."""

    def __init__(self, story: Story, leads: list[Led]) -> None:
        self._story = story
        self._leads = leads
        self._led_at = [led.at_ns for led in leads]

    def judge(self, said: Said) -> Violation | None:
        """What is wrong with it, if anything."""
        durable_ns = self._durable_ns(said)
        if durable_ns is None or durable_ns <= said.at_ns:
            return None
        what = "push" if not said.words else b" ".join(said.words[:2]).decode()
        when = "at no time" if durable_ns == _LATER else f"only at {durable_ns / 1e9:.6f}"
        guarantee = "G10" if self.is_sealed(said.node, said.at_ns) else "G3"
        return Violation(
            guarantee,
            said.at_ns,
            f"{said.node} said {said.reply!r} to {what} of session {said.session}, durable {when}",
        )

    def is_sealed(self, node: str, at_ns: int) -> bool:
        """Whether another node has taken an epoch since this one did."""
        taken = self._leads[: bisect_right(self._led_at, at_ns)]
        return bool(taken) and taken[-1].node != node

    def _durable_ns(self, said: Said) -> int | None:
        """When what explains it was durable; None if it needs no explanation."""
        if not said.words:
            return self._of_push(said)
        reply = said.reply
        if isinstance(reply, hiredis.ReplyError):
            code = str(reply).partition(" ")[0]
            if code in NO_ANSWER:
                return None
            if code == "NOSESSION":
                return self._of_no_session(said)
        explain = _EXPLAINED.get(said.words[0])
        return None if explain is None else explain(self._story, said)

    def _of_no_session(self, said: Said) -> int | None:
        session = int(said.words[1]) if said.words[0] == b"SESSION.RESUME" else said.session
        return self._story.over.get(session, _LATER) if session else None

    def _of_push(self, said: Said) -> int | None:
        story, push = self._story, said.reply
        match push[0]:
            case b"grant":
                return _of_grant(story, said.session, push[2])
            case b"timeout" | b"cancelled" | b"refused":
                return story.finals.get((said.session, push[1]), _LATER)
            case b"ended":
                return story.over.get(push[1], _LATER)
            case b"lost":
                return story.ended.get((push[1].decode(), push[2]), _LATER)
        return None


def _of_grant(story: Story, session: int, reply: dict[bytes, Any]) -> int:
    grant = story.grants.get(reply[b"fence"])
    names = tuple(name.decode() for name in reply[b"names"])
    if grant is None or grant.granted.session != session or grant.granted.names != names:
        return _LATER
    return grant.at_ns


def _of_acquire(story: Story, said: Said) -> int:
    if isinstance(said.reply, dict) and b"fence" in said.reply:
        return _of_grant(story, said.session, said.reply)
    return _of_request(story, said)


def _of_request(story: Story, said: Said) -> int:
    return story.requests.get((said.session, _number(said, b"REQUEST")), _LATER)


def _number(said: Said, word: bytes) -> int:
    return int(said.words[said.words.index(word) + 1]) if word in said.words else 0


def _of_cancel(story: Story, said: Said) -> int:
    return story.cancels.get((said.session, int(said.words[1])), _LATER)


def _of_open(story: Story, said: Said) -> int | None:
    return story.opened.get(said.reply[b"session"], _LATER) if isinstance(said.reply, dict) else None


def _of_renewal(story: Story, said: Said) -> int | None:
    if not isinstance(said.reply, dict):
        return None
    return story.renewed.get((said.session, said.reply[b"at"]), _LATER)


def _of_close(story: Story, said: Said) -> int:
    return story.closed.get(said.session, _LATER)


def _of_break(story: Story, said: Said) -> int | None:
    return story.breaks.get(said.reply[b"fence"], _LATER) if isinstance(said.reply, dict) else None


_EXPLAINED = {
    b"LOCK.ACQUIRE": _of_acquire,
    b"LOCK.MACQUIRE": _of_acquire,
    b"LOCK.RELEASE": _of_request,
    b"LOCK.MRELEASE": _of_request,
    b"LOCK.EXTEND": _of_request,
    b"LOCK.MEXTEND": _of_request,
    b"LOCK.CANCEL": _of_cancel,
    b"SESSION.OPEN": _of_open,
    b"SESSION.RESUME": _of_renewal,
    b"SESSION.KEEPALIVE": _of_renewal,
    b"SESSION.CLOSE": _of_close,
    b"LOCK.BREAK": _of_break,
}
