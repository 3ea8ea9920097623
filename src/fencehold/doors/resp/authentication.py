"""Who asks, on the wire: AUTH, the login of a greeting, and what is refused until that is known.

1. A login is looked at alone: what was sent after it waits until it is answered, so that a thousand of them sent
   at once are as slow as one after the other, and are answered in order.
2. Where everybody is asked who they are, nothing else is answered before than what is about the connection itself
   (`security.rights`).
3. A connection says who it is before its first session and its first watch: what it has is all of one principal.
4. A user that there is not, one that is disabled and a wrong secret get the same words, after the same time.
"""

from collections.abc import Callable
from functools import partial

from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import exactly, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.guard import WHO
from fencehold.doors.resp.wrong import Wrong
from fencehold.errors import FenceholdError, Overloaded
from fencehold.security.admission import Shown
from fencehold.security.rights import NEEDS, About

NO_USERS = "this server has no users: connect without AUTH"

_DEFAULT = "default"
"""Who one is that gives a secret alone: what Redis clients mean by that."""


def auth(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """AUTH [user] secret, or AUTH token <token>."""
    exactly(words, 1, 2)
    user = text(words[1], "the user") if len(words) == 3 else _DEFAULT
    log_in(connection, slot, user, text(words[-1], "the secret"), partial(slot.fill, replies.OK))


def log_in(connection: Connection, slot: Slot, user: str, secret: str, then: Callable[[], None]) -> None:
    """Find out who asks, and go on with `then`; if that fails, the slot gets the error.

    Raises:
        Wrong: nobody can log in here, or not any more.
    """
    admission = connection.door.admission
    if not admission.has_logins and not admission.is_own_listener(user, secret):
        raise Wrong(NO_USERS)
    if connection.member is not None or connection.awaiting_session or connection.watching is not None:
        raise Wrong("a connection that has a session or a watch stays who it is: log in first, or on another one")
    connection.begin_admission()
    connection.door.spawn(_log_in(connection, Shown(user=user, secret=secret), slot, then))


async def _log_in(connection: Connection, shown: Shown, slot: Slot, then: Callable[[], None]) -> None:
    origin, login = connection.door.admission.origin_of(connection.address, shown)
    connection.origin = origin if origin.is_passed_on else None
    try:
        known = await connection.door.admission.admit(connection.address, shown)
    except FenceholdError as error:
        _refuse(connection, login.user, slot, error)
    except Exception:
        # Of what checks secrets: a bug, which the loop tells of. It lets nobody in, and nobody waits for ever.
        slot.error("UNAVAILABLE", "the login could not be checked")
        raise
    else:
        if not connection.ending:
            if not origin.is_alone:
                # Others come by it, too, whom nobody tells apart here.
                connection.origin = None
            connection.admit(known)
            then()
    finally:
        # Last: what waited behind it is handled from here on.
        connection.end_admission()


def _refuse(connection: Connection, user: str, slot: Slot, error: FenceholdError) -> None:
    connection.door.on_denied(connection, f"login as {user[:64]!a}", "")
    if connection.ending:
        return
    if isinstance(error, Overloaded):
        refuse(slot, error, 0)
        connection.end()
    else:
        slot.error("WRONGPASS", str(error))


def _not_known(word: bytes, connection: Connection, words: list[bytes], slot: Slot) -> None:
    slot.error("NOAUTH", WHO)
    connection.door.on_denied(connection, word.decode(), "")


def before_admission(handlers: dict[bytes, Handler]) -> dict[bytes, Handler]:
    """The same commands, as they are answered to somebody who has not said who they are."""
    return {
        word: handler if NEEDS[word.decode()].about is About.CONNECTION else partial(_not_known, word)
        for word, handler in handlers.items()
    }


HANDLERS: dict[bytes, Handler] = {b"AUTH": auth}
