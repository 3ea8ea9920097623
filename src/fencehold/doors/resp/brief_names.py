"""Names in brief: what a client that mirrors all names keeps of each, as arrays, which cost less than maps.

An item is an array: name, mode, holders, waiters, the newest fence, and of the oldest hold its session, owner,
time of the grant (0: unknown) and milliseconds until it ends by itself (-1: with its session).
"""

from typing import TYPE_CHECKING

from fencehold.core.anchors import granted_unix_ms
from fencehold.core.state import State
from fencehold.core.views import holding_of
from fencehold.doors.resp.replies import Encoded, bulk

if TYPE_CHECKING:
    from collections.abc import Iterable

_ITEM = b"*9\r\n%b%b:%d\r\n:%d\r\n:%d\r\n:%d\r\n%b:%d\r\n:%d\r\n"
_NOBODY = b"$0\r\n\r\n"


def brief(state: State, names: "Iterable[str]", bytes_max: int) -> tuple[Encoded, int]:
    """As many of these names as fit into that many bytes, at least one; and how many these are."""
    parts: list[bytes] = []
    left = bytes_max
    for name in names:
        part = _item(state, name)
        left -= len(part)
        if left < 0 and parts:
            break
        parts.append(part)
    return Encoded(b"*%d\r\n%b" % (len(parts), b"".join(parts))), len(parts)


def _item(state: State, name: str) -> bytes:
    holding, queue = holding_of(state, name), state.queues.get(name)
    waiters = len(queue) if queue is not None else 0
    if holding is None:
        return _ITEM % (bulk(name), _NOBODY, 0, waiters, 0, 0, _NOBODY, 0, -1)
    hold = holding.oldest
    return _ITEM % (
        bulk(name),
        bulk(hold.mode.value),
        holding.count,
        waiters,
        holding.newest.fence,
        hold.session,
        bulk(hold.owner),
        granted_unix_ms(state, hold) or 0,
        hold.until_at - state.now_at if hold.until_at else -1,
    )
