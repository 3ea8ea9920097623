"""Answers: outcomes of the machine, as replies of the protocol. Every outcome has exactly one translation."""

import json
from collections.abc import Callable
from typing import Any

from fencehold.core.commands import Settle
from fencehold.core.outcomes import (
    Cancelled,
    Code,
    Deadlock,
    Granted,
    Link,
    NoSession,
    Outcome,
    Reason,
    Refused,
    ShardLink,
    WaitEnded,
)
from fencehold.doors.resp import replies
from fencehold.doors.resp.connection import Connection, Slot
from fencehold.doors.resp.guard import redacted
from fencehold.errors import FenceholdError, NotLeader, OutcomeUnknown, Overloaded

_CODES = {
    Code.USAGE: "USAGE",
    Code.LIMIT: "LIMIT",
    Code.QUEUE_FULL: "QUEUEFULL",
    Code.DENIED: "DENIED",
    Code.CONFLICT: "CONFLICT",
    Code.MOVED: "MOVED",
    Code.ELSEWHERE: "ELSEWHERE",
    Code.MOVING: "MOVING",
    Code.SUSPENDED: "SUSPENDED",
    # Redis Cluster's code for a slot that is migrating; its clients retry.
    Code.ARRIVING: "TRYAGAIN",
}
_REASONS = {
    Reason.NOT_OWNER: ("NOTOWNER", "this session does not hold that name with that fence"),
    Reason.ALREADY_RELEASED: ("RELEASED", "it was released before"),
    Reason.EXPIRED: ("EXPIRED", "the hold expired, or was force-released, before this"),
}


def done(slot: Slot, expected: type[Outcome], outcome: Outcome | FenceholdError, at_ms: int) -> None:
    """Reply OK if the outcome is the expected one."""
    if isinstance(outcome, expected):
        slot.fill(replies.OK)
    else:
        refuse(slot, outcome, at_ms)


def refuse(slot: Slot, outcome: Outcome | FenceholdError, at_ms: int) -> None:
    """Reply why a command failed, or that its outcome is unknown."""
    match outcome:
        case Refused() if outcome.code is Code.MOVED:
            refuse_moved(slot, int(outcome.detail.partition(" ")[0]), outcome.detail)
        case Refused():
            slot.error(_CODES[outcome.code], outcome.detail)
        case NoSession():
            slot.error("NOSESSION", f"session {outcome.session} {'has ended' if outcome.ended else 'never was'}")
        case Deadlock():
            slot.error("DEADLOCK", _circle(redacted(slot.connection, outcome), at_ms))
        case OutcomeUnknown():
            slot.error("UNKNOWN", str(outcome))
        case NotLeader() if outcome.leader:
            # The last word is the address: clients go there.
            slot.error("NOTLEADER", f"this node stands by; ask {outcome.leader}")
        case Overloaded():
            # The first word after the code says when to retry, in milliseconds.
            slot.error("BUSY", f"{round(outcome.retry_after_s * 1000)} {outcome}")
        case FenceholdError():
            slot.error("UNAVAILABLE", str(outcome))
        case _:
            # A request id is remembered with the command it was first used for.
            slot.error("USAGE", "this request id was used before, for another kind of command")


def tell_found(slot: Slot, found: Any) -> None:
    """Answer a question with what was found; or say why nothing was."""
    if isinstance(found, FenceholdError):
        refuse(slot, found, 0)
    else:
        slot.reply(found)


def refuse_moved(slot: Slot, number: int, why: str) -> None:
    """Reply where the names of a slot are granted; as Redis Cluster does, so that its clients go there."""
    door = slot.connection.door
    if door.shards is None:
        slot.error("MOVED", why)
        return
    shard = door.shards.map.shard_of(number)
    address = door.shards.leader_of(shard).address or door.advertised
    slot.error("MOVED", f"{number} {address}")


def refuse_hold(slot: Slot, reason: Reason, names: tuple[str, ...] = ()) -> None:
    """Reply why a release or an extension was refused."""
    code, message = _REASONS[reason]
    slot.error(code, f"{message}: {', '.join(names)}" if names else message)


def settle(
    connection: Connection, lasts_ms: Callable[[int], int], ended: WaitEnded, slot: Slot | None, at_ms: int
) -> None:
    """Answer an acquire that waited: in its slot if it blocks, else by a push."""
    answer = ended.answer
    version = connection.version
    ttl_ms = lasts_ms(answer.ttl_ms) if isinstance(answer, Granted) else 0
    if slot is not None:
        granted = isinstance(answer, Granted)
        if isinstance(answer, Refused | Deadlock):
            refuse(slot, answer, at_ms)
        else:
            slot.fill(replies.grant(answer, ttl_ms, version) if granted else replies.NULL[version])  # type: ignore[arg-type]
        if ended.request:
            # It is a reply like any other, in its order: the client acknowledges it by ANSWERED.
            connection.submit(Settle(ended.session, (ended.request,)), ignore)
    elif isinstance(answer, Granted):
        connection.push(replies.push_grant(ended.request, answer, ttl_ms))
    elif isinstance(answer, Refused):
        connection.push(replies.push("refused", ended.request, _CODES[answer.code], answer.detail))
    elif isinstance(answer, Deadlock):
        circle = _circle(redacted(connection, answer), at_ms)
        connection.push(replies.push("refused", ended.request, "DEADLOCK", circle))
    else:
        what = "cancelled" if isinstance(answer, Cancelled) else "timeout"
        connection.push(replies.push(what, ended.request))


def _circle(circle: tuple[Link, ...], at_ms: int) -> str:
    return json.dumps({"circle": [_link(link, at_ms) for link in circle]}, ensure_ascii=False)


def _link(link: Link, at_ms: int) -> dict[str, str | int]:
    told: dict[str, str | int] = {
        "session": link.session,
        "owner": link.owner,
        "name": link.name,
        "fence": link.fence,
        "since_ms_ago": at_ms - link.since_at if link.since_at >= 0 else 0,
    }
    # Only where it matters: older clients do not know the field.
    return told | {"shard": link.shard} if isinstance(link, ShardLink) else told


def ignore(*_: object) -> None:
    """No caller waits for the answer."""
