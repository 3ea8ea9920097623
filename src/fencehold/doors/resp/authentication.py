"""Authentication on the wire: AUTH, and HELLO with AUTH, against the users of the policy.

1. A connection says who it is before its first session and its first watch: what it has is all of one principal.
2. What it sends behind AUTH waits until that is answered, and its answer comes in its order, right or wrong.
3. A user that there is not, one that is disabled and a wrong secret get the same words, after the same time.
"""

from collections.abc import Callable
from functools import partial

from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import Wrong, exactly, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.errors import FenceholdError

_DEFAULT = "default"
"""Who one is that gives a secret alone: what Redis clients mean by that."""


def auth(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """AUTH [user] secret."""
    exactly(words, 1, 2)
    user = text(words[1], "the user") if len(words) > 2 else _DEFAULT
    log_in(connection, slot, user, text(words[-1], "the secret"), partial(slot.fill, replies.OK))


def log_in(connection: Connection, slot: Slot, user: str, secret: str, then: Callable[[], None]) -> None:
    """Find out whether somebody is who it says, and go on if so."""
    book = connection.door.node.rulebook
    if book is None:
        raise Wrong("this server has no users: connect without AUTH")
    if connection.member is not None or connection.awaiting_session or connection.watching is not None:
        raise Wrong("say who you are before the first session and the first watch of a connection")
    known = book.policy.users.get(user)
    secrets = connection.door.secrets
    connection.begin_admission()
    if secrets.recall(user, secret, known):
        _end(connection, slot, user, True, then)
        return

    async def check() -> None:
        try:
            is_right = await secrets.check(user, secret, known)
        except FenceholdError as error:
            connection.end_admission()
            refuse(slot, error, 0)
        else:
            _end(connection, slot, user, is_right, then)

    connection.door.spawn(check())


def _end(connection: Connection, slot: Slot, user: str, is_right: bool, then: Callable[[], None]) -> None:
    if connection.ending:
        return
    if is_right:
        connection.principal = user
        connection.take_place()
        then()
    else:
        slot.error("WRONGPASS", "the user and the secret do not belong together, or the user is disabled")
    # Last: what waited behind it is handled from here on.
    connection.end_admission()


HANDLERS: dict[bytes, Handler] = {b"AUTH": auth}
