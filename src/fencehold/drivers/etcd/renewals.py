"""Renewals of leases by one member, in a stream that is kept from one to the next.

A stream answers in the order of what was asked, and does not say to what. So *an answer belongs to the renewal
before it, or to none*: trust in a lease counts from when its renewal was sent, and the late answer of an earlier
one must not pass for that of a later one. A stream in which a renewal was not answered is given up, and so is one
in which something was said that nobody had asked.
"""

from collections.abc import Callable

from fencehold.drivers.etcd.http2.channel import Talk
from fencehold.drivers.etcd.http2.frames import Metadata
from fencehold.drivers.etcd.http2.status import CallFailed, Code
from fencehold.drivers.etcd.transactions import Message


class Renewals:
    """Those of one member. `begin` begins a stream."""

    def __init__(self, begin: Callable[..., Talk]) -> None:
        self._begin = begin
        self._kept: Talk | None = None
        """Nobody uses it now."""
        self._metadata: Metadata = ()
        """What it was begun with."""

    async def renew(self, request: Message, *, timeout: float, metadata: Metadata) -> Message:  # noqa: ASYNC109 - called as services are
        """One renewal, as if it were a call of its own.

        Raises:
            CallFailed: see its `code` and `is_sent`.
        """
        talk = self._take(metadata)
        try:
            answer = await talk.exchange(request, timeout)
            if answer is None or answer.ID != request.ID:
                raise CallFailed(Code.UNAVAILABLE, "the stream of renewals ended, or is out of step")
        except BaseException:
            talk.cancel()
            raise
        self._keep(talk, metadata)
        return answer

    def _take(self, metadata: Metadata) -> Talk:
        """The stream that was kept, if it will do; who asks while another has it gets one of its own."""
        talk, self._kept = self._kept, None
        if talk is not None:
            if talk.is_at_rest and metadata == self._metadata:
                return talk
            talk.cancel()
        return self._begin(metadata=metadata)

    def _keep(self, talk: Talk, metadata: Metadata) -> None:
        if self._kept is not None:
            self._kept.cancel()
        self._kept, self._metadata = talk, metadata
