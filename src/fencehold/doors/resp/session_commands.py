"""Sessions on the wire: opening, resuming, keeping alive, closing; and the implicit ones of plain clients."""

import hmac
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from msgspec.structs import asdict

from fencehold.core.commands import CloseSession, OpenSession, OpenSessionAs, OpenSessionBy, Renew
from fencehold.core.outcomes import Closed, Code, Opened, Outcome, Refused, Renewed
from fencehold.core.state import Session, State
from fencehold.doors.resp.answers import done, ignore, refuse
from fencehold.doors.resp.arguments import at_least, exactly, kinds, number, options, text, usage
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.member import Member
from fencehold.doors.resp.policy_commands import ttl_ms_max
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.errors import FenceholdError

Told = Outcome | FenceholdError

_RENEWALS_MAX = 8
"""Keep-alives of one session that overtake all commands. A client sends one, and waits for the answer."""

_HELD_MAX = 128
"""Holds in one question: with the longest names they fit into a frame."""

_OPEN = kinds(TTL=("ttl_ms", number), GRACE=("grace_ms", number), META=("meta", text))


def open_session(connection: Connection, words: list[bytes], slot: Slot) -> None:
    found = options(words, 1, _OPEN)
    if "ttl_ms" not in found:
        raise Wrong("SESSION.OPEN needs TTL ms")
    _refuse_second(connection)
    secret = connection.door.new_secret()
    command = _owned(connection, OpenSession(secret=secret, **found))
    connection.submit(command, partial(_opened, connection, slot, secret))


def _owned(connection: Connection, command: OpenSession) -> OpenSession:
    """A session belongs to the principal of its connection. Without one it is written as before principals
    existed.

    It ends with its own principal's token, not with that of a listener which speaks for it: when a listener is no
    longer trusted, its connections end, and what its clients hold expires while they can trust it.
    """
    known = connection.known
    principal, token = connection.principal, "" if known.listener else known.token
    if token:
        return OpenSessionBy(**asdict(command), principal=principal, token=token)
    return OpenSessionAs(**asdict(command), principal=principal) if principal else command


def _opened(connection: Connection, slot: Slot, secret: str, outcome: Told, at_ms: int) -> None:
    if not isinstance(outcome, Opened):
        refuse(slot, outcome, at_ms)
    elif connection.ending or connection.member is not None:
        # The client is gone, or two were requested at once.
        connection.submit(CloseSession(outcome.session), ignore)
        slot.error("USAGE", "this connection has a session already")
    else:
        connection.member = Member(connection, outcome.session, outcome.ttl_ms, implicit=False)
        connection.is_plain = False
        slot.reply(
            {
                "session": outcome.session,
                "secret": secret,
                "ttl_ms": outcome.ttl_ms,
                "grace_ms": outcome.grace_ms,
                "at": at_ms,
            }
        )


def resume_session(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 2)
    _refuse_second(connection)
    number_, secret = number(words[1], "the session"), text(words[2], "the secret")
    node = connection.node
    session = node.replica.machine.state.sessions.get(number_) if node.leads else None
    is_its = session is not None and session.principal == connection.principal
    if session is None or not is_its or not _is_its_secret(session, secret):
        # What the state says may not be durable yet, and a client that gets this reply gives up all it holds.
        connection.ask(_nothing, partial(_not_found, slot, number_, node.tier.name))
        return
    # Attached before it is durable: the end of the old connection must not suspend it any more.
    member = connection.member = Member(connection, session.id, session.ttl_ms, implicit=False, resumed=True)
    connection.is_plain = False
    connection.submit(Renew((session.id,)), partial(_resumed, connection, member, slot, session.grace_ms))


def _is_its_secret(session: Session, secret: str) -> bool:
    # An implicit session has none, and cannot be resumed.
    return bool(session.secret) and hmac.compare_digest(session.secret.encode(), secret.encode())


def _nothing(_: State) -> None:
    """To be answered when what the state says is durable."""


def _not_found(slot: Slot, session: int, tier: str, found: FenceholdError | None) -> None:
    if found is not None:
        refuse(slot, found, 0)
    else:
        # The same message for all: guessing reveals nothing.
        slot.error("NOSESSION", f"session {session} has ended, is not of the {tier} tier, or has another secret")


def _resumed(connection: Connection, member: Member, slot: Slot, grace_ms: int, outcome: Told, at_ms: int) -> None:
    if isinstance(outcome, Renewed) and member.session not in outcome.ended:
        slot.reply({"session": member.session, "ttl_ms": member.ttl_ms, "grace_ms": grace_ms, "at": at_ms})
    else:
        # The client may retry, here or elsewhere.
        connection.node.routes.detach(member.session, connection)
        if connection.member is member:
            connection.member = None
        _not_renewed(slot, member.session, outcome, at_ms)


def keep_alive(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 0)
    member = member_of(connection)
    member.is_proven = True
    told = partial(_kept_alive, slot, member, connection.node.logical_ms())
    if member.ending or member.renewals >= _RENEWALS_MAX:
        # Renewals go to the front of their entry: this one must not come before the close it was sent after, and a
        # flood of them is a flood like any other.
        connection.submit(Renew((member.session,)), told)
    else:
        member.renewals += 1
        connection.node.renew(member.session, partial(_renewed, member, told))


def _renewed(member: Member, told: Callable[[Told, int], None], outcome: Told, at_ms: int) -> None:
    member.renewals -= 1
    told(outcome, at_ms)


def _kept_alive(slot: Slot, member: Member, came_at_ms: int, outcome: Told, at_ms: int) -> None:
    if isinstance(outcome, Renewed) and member.session not in outcome.ended:
        slot.reply({"at": at_ms, "ttl_ms": member.ttl_ms, "came_at": came_at_ms})
    else:
        _not_renewed(slot, member.session, outcome, at_ms)


def _not_renewed(slot: Slot, session: int, outcome: Told, at_ms: int) -> None:
    if isinstance(outcome, Renewed):
        slot.error("NOSESSION", f"session {session} has ended")
    else:
        refuse(slot, outcome, at_ms)


def tell_ended(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """Of the holds that a client believes it has: the fences of those that its session no longer has."""
    at_least(words, 2)
    if len(words) % 2 == 0:
        raise Wrong(usage(words[0]))
    if len(words) > 2 * _HELD_MAX:
        raise Wrong(f"SESSION.HELD takes at most {_HELD_MAX} holds")
    pairs = zip(words[1::2], words[2::2], strict=True)
    believed = [(text(name, "a name"), number(fence, "the fence")) for name, fence in pairs]
    session = member_of(connection).session
    connection.ask(partial(_ended_of, session, believed), partial(_told_ended, slot))


def _ended_of(session: int, believed: list[tuple[str, int]], state: State) -> list[int]:
    ended = [
        fence for name, fence in believed if (hold := state.find(name, fence)) is None or hold.session != session
    ]
    return list(dict.fromkeys(ended))


def _told_ended(slot: Slot, found: list[int] | FenceholdError) -> None:
    if isinstance(found, FenceholdError):
        refuse(slot, found, 0)
    else:
        slot.reply(found)


def close_session(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 0)
    member = member_of(connection)
    member.ending = True
    connection.submit(CloseSession(member.session), partial(_closed, member, slot))


def _closed(member: Member, slot: Slot, outcome: Told, at_ms: int) -> None:
    member.ending = not isinstance(outcome, FenceholdError)
    done(slot, Closed, outcome, at_ms)


class NoMember(Wrong):
    """The command needs a session, and the connection has none, or has none any more."""

    code: ClassVar[str] = "NOSESSION"


def member_of(connection: Connection) -> Member:
    """The session the connection speaks for."""
    if connection.member is None:
        raise NoMember("this connection has no session; if it had one, that has ended")
    return connection.member


def _refuse_second(connection: Connection) -> None:
    if connection.member is not None or connection.awaiting_session:
        raise Wrong("this connection has a session already")


def with_implicit(connection: Connection, slot: Slot, go_on: Callable[[], None]) -> None:
    """Open a session for a plain client's connection, then continue."""
    if not connection.is_plain:
        # Its own session ended: silently opening another would hide that it lost what it held.
        member_of(connection)
    connection.awaiting_session.append((slot, go_on))
    if len(connection.awaiting_session) == 1:
        ttl_ms, meta = connection.door.bounds.implicit_ttl_ms, connection.door.meta_of(connection)
        command = _owned(connection, OpenSession(ttl_ms, meta=meta))
        connection.submit(command, partial(_implicit_opened, connection))


def _implicit_opened(connection: Connection, outcome: Told, at_ms: int) -> None:
    waiting, connection.awaiting_session = connection.awaiting_session, []
    if not isinstance(outcome, Opened):
        for slot, _ in waiting:
            refuse(slot, _explained(connection, outcome), at_ms)
    elif connection.ending:
        connection.submit(CloseSession(outcome.session), ignore)
    elif connection.member is not None:
        # An explicit one, requested before, came first.
        connection.submit(CloseSession(outcome.session), ignore)
        for _, go_on in waiting:
            go_on()
    else:
        sure_ms = connection.door.bounds.implicit_sure_ms
        connection.member = Member(connection, outcome.session, sure_ms, implicit=True)
        for _, go_on in waiting:
            go_on()


def _explained(connection: Connection, outcome: Told) -> Told:
    """The error for a plain client that gets no session: it gave no ttl that could be too long."""
    implicit_ms = connection.door.bounds.implicit_ttl_ms
    most_ms = ttl_ms_max(connection.node.rulebook, connection.principal)
    if not isinstance(outcome, Refused) or outcome.code is not Code.LIMIT or not 0 < most_ms < implicit_ms:
        return outcome
    hint = f"that of a connection without a session is {implicit_ms // 1000} s: SESSION.OPEN TTL {most_ms} first"
    return Refused(outcome.code, f"{outcome.detail}; {hint}")


HANDLERS: dict[bytes, Handler] = {
    b"SESSION.OPEN": open_session,
    b"SESSION.RESUME": resume_session,
    b"SESSION.KEEPALIVE": keep_alive,
    b"SESSION.HELD": tell_ended,
    b"SESSION.CLOSE": close_session,
}
