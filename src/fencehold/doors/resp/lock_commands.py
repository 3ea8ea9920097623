"""Locking: the LOCK.* commands that go through the journal."""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from fencehold.core.commands import Acquire, Break, BreakAs, Cancel, Extend, Release, Settle
from fencehold.core.outcomes import (
    RELEASED,
    Broken,
    Busy,
    Cancelled,
    Extended,
    Granted,
    Outcome,
    Queued,
    Reason,
    Released,
    Settled,
    TimedOut,
)
from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import done, refuse, refuse_hold
from fencehold.doors.resp.arguments import (
    acquire,
    at_least,
    exactly,
    kinds,
    names,
    number,
    options,
    request,
    text,
)
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.member import Member
from fencehold.doors.resp.session_commands import member_of, with_implicit
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.errors import FenceholdError

Told = Outcome | FenceholdError

_BREAK = kinds(FENCE=("fence", number), BY=("by", text))


def acquire_one(connection: Connection, words: list[bytes], slot: Slot) -> None:
    if len(words) < 2:
        at_least(words, 1)
    _acquire(connection, words, slot, (text(words[1], "a name"),), 2)


def acquire_several(connection: Connection, words: list[bytes], slot: Slot) -> None:
    asked, start = names(words)
    _acquire(connection, words, slot, asked, start)


def _acquire(connection: Connection, words: list[bytes], slot: Slot, asked: tuple[str, ...], start: int) -> None:
    member = connection.member
    command, in_background = acquire(words, member.session if member else 0, asked, start)
    if in_background and connection.version != 3:
        raise Wrong("ASYNC needs pushes: send HELLO 3 first")
    if member is None:
        told = partial(_acquired, slot, in_background, connection.version)
        with_implicit(connection, slot, partial(_acquire_later, connection, command, told))
    else:
        connection.submit(command, partial(_acquired, slot, in_background, connection.version, member))


def _acquire_later(connection: Connection, command: Acquire, told: Callable[[Member, Told, int], None]) -> None:
    """Continue when the session is open."""
    member = member_of(connection)
    connection.submit(replace(command, session=member.session), partial(told, member))


def _acquired(slot: Slot, in_background: bool, version: int, member: Member, outcome: Told, at_ms: int) -> None:
    kind = type(outcome)
    if kind is Granted:
        own_ttl_ms = outcome.ttl_ms  # type: ignore[union-attr]
        ttl_ms = member.lasts_ms(own_ttl_ms) if own_ttl_ms else member.ttl_ms
        slot.fill(replies.grant(outcome, ttl_ms, version))  # type: ignore[arg-type]
    elif kind is Busy or kind is TimedOut or kind is Cancelled:
        slot.fill(replies.NULL[version])
    elif not isinstance(outcome, Queued):
        refuse(slot, outcome, at_ms)
    elif in_background:
        slot.reply({"queued": outcome.ticket, "ahead": outcome.ahead, "at": at_ms})
    else:
        member.block(outcome.ticket, slot)


def cancel(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 1)
    command = Cancel(member_of(connection).session, number(words[1], "the request"))
    connection.submit(command, partial(done, slot, Cancelled))


def release_one(connection: Connection, words: list[bytes], slot: Slot) -> None:
    if len(words) < 3:
        at_least(words, 2)
    _release(connection, words, slot, (text(words[1], "a name"),), 2)


def release_several(connection: Connection, words: list[bytes], slot: Slot) -> None:
    asked, start = names(words)
    at_least(words, start)
    _release(connection, words, slot, asked, start)


def _release(connection: Connection, words: list[bytes], slot: Slot, asked: tuple[str, ...], start: int) -> None:
    fence = number(words[start], "the fence")
    found = request(words, start + 1)
    member = connection.member or member_of(connection)
    connection.submit(Release(member.session, asked, fence, **found), partial(_released, slot))


def _released(slot: Slot, outcome: Told, at_ms: int) -> None:
    if outcome is RELEASED:
        slot.fill(replies.OK)
    elif not isinstance(outcome, Released):
        refuse(slot, outcome, at_ms)
    elif outcome.reason is Reason.OK:
        slot.fill(replies.OK)
    else:
        refuse_hold(slot, outcome.reason, outcome.refused)


def extend_one(connection: Connection, words: list[bytes], slot: Slot) -> None:
    at_least(words, 3)
    _extend(connection, words, slot, (text(words[1], "a name"),), 2)


def extend_several(connection: Connection, words: list[bytes], slot: Slot) -> None:
    asked, start = names(words)
    at_least(words, start + 1)
    _extend(connection, words, slot, asked, start)


def _extend(connection: Connection, words: list[bytes], slot: Slot, asked: tuple[str, ...], start: int) -> None:
    fence, ttl_ms = number(words[start], "the fence"), number(words[start + 1], "the ttl")
    found = request(words, start + 2)
    member = member_of(connection)
    command = Extend(member.session, asked, fence, ttl_ms, **found)
    connection.submit(command, partial(_extended, connection, slot, member, command))


def _extended(
    connection: Connection, slot: Slot, member: Member, command: Extend, outcome: Told, at_ms: int
) -> None:
    if not isinstance(outcome, Extended):
        refuse(slot, outcome, at_ms)
    elif outcome.reason is not Reason.OK:
        refuse_hold(slot, outcome.reason)
    else:
        # A retry gets the same answer as the first time: the end must not seem to have moved.
        extended_at = outcome.until_at - command.ttl_ms if outcome.until_at else at_ms
        granted = Granted(
            command.session, command.request, command.names, command.fence, extended_at, command.ttl_ms
        )
        slot.fill(replies.grant(granted, member.lasts_ms(command.ttl_ms), connection.version))


def settle(connection: Connection, words: list[bytes], slot: Slot) -> None:
    at_least(words, 1)
    requests = tuple(number(word, "a request") for word in words[1:])
    connection.submit(Settle(member_of(connection).session, requests), partial(done, slot, Settled))


def break_name(connection: Connection, words: list[bytes], slot: Slot) -> None:
    at_least(words, 1)
    found = {"by": _who(connection), **options(words, 2, _BREAK)}
    name, principal = text(words[1], "a name"), connection.principal
    command = BreakAs(name, **found, principal=principal) if principal else Break(name, **found)
    connection.submit(command, partial(_broken, slot))


def _who(connection: Connection) -> str:
    """What is known of the client: its own description, or its address."""
    said = "" if connection.member is None else connection.node.meta_of(connection.member.session)
    return said or connection.door.meta_of(connection)


def _broken(slot: Slot, outcome: Told, at_ms: int) -> None:
    if isinstance(outcome, Broken):
        slot.reply({"name": outcome.name, "fence": outcome.fence, "ended": list(outcome.ended)})
    else:
        refuse(slot, outcome, at_ms)


HANDLERS: dict[bytes, Handler] = {
    b"LOCK.ACQUIRE": acquire_one,
    b"LOCK.MACQUIRE": acquire_several,
    b"LOCK.CANCEL": cancel,
    b"LOCK.RELEASE": release_one,
    b"LOCK.MRELEASE": release_several,
    b"LOCK.EXTEND": extend_one,
    b"LOCK.MEXTEND": extend_several,
    b"LOCK.SETTLE": settle,
    b"LOCK.BREAK": break_name,
}
