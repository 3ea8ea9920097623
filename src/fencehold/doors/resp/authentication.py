"""Authentication on the wire: AUTH, the login in HELLO, and what is refused before it.

1. A login is checked alone: what was sent after it waits until it is answered, so a thousand of them sent at once
   are as slow as one after the other, and are answered in order.
2. Where authentication is required, only commands about the connection itself are answered before it
   (`security.rights`).
3. A connection logs in before its first session and its first watch: all that it has belongs to one principal.
4. An unknown user, a disabled one and a wrong secret get the same message, after the same time.
"""

from collections.abc import Callable
from functools import partial

from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import exactly, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.guard import WHO
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.errors import FenceholdError, Overloaded
from fencehold.security.admission import Shown
from fencehold.security.rights import NEEDS, About

NO_USERS = "this server has no users: connect without AUTH"

_DEFAULT = "default"
"""The user of a secret given alone, as Redis clients mean it."""


def auth(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """AUTH [user] secret, or AUTH token <token>."""
    exactly(words, 1, 2)
    user = text(words[1], "the user") if len(words) == 3 else _DEFAULT
    log_in(connection, slot, user, text(words[-1], "the secret"), partial(slot.fill, replies.OK))


def log_in(connection: Connection, slot: Slot, user: str, secret: str, then: Callable[[], None]) -> None:
    """Authenticate, then call `then`; if that fails, the slot gets the error.

    Raises:
        Wrong: no user can log in here, or this connection no longer can.
    """
    admission = connection.door.admission
    if not admission.has_logins and not admission.is_own_listener(user, secret):
        raise Wrong(NO_USERS)
    if connection.member is not None or connection.awaiting_session or connection.watching is not None:
        raise Wrong("a connection with a session or a watch keeps its user: log in first, or on another one")
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
        # A bug in checking secrets, which the loop reports. It admits no client, and none waits for ever.
        slot.error("UNAVAILABLE", "the login could not be checked")
        raise
    else:
        if not connection.ending:
            if not origin.is_alone:
                # Other clients share that origin, and cannot be told apart here.
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
    """The same commands, as they are answered to an unauthenticated client."""
    return {
        word: handler if NEEDS[word.decode()].about is About.CONNECTION else partial(_not_known, word)
        for word, handler in handlers.items()
    }


HANDLERS: dict[bytes, Handler] = {b"AUTH": auth}
