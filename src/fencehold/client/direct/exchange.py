"""An exchange: a caller sends its request and reads its reply, on its own thread, in one turn.

One call to send and, unless it spins (`spin`), one to receive, when all goes well. The laws are those of `turns`.
"""

from collections.abc import Callable
from ssl import SSLError
from typing import Any

from hiredis import ProtocolError

from fencehold.client.direct.driver import TICK_S, LineDriver
from fencehold.client.direct.spin import NOT_NOW, NOW
from fencehold.client.direct.turns import RECEIVED, RECEIVING, SENDING, SENT, Call
from fencehold.client.protocol import single_request
from fencehold.client.protocol.session import NOTHING

REPLY_BYTES = 4_096
"""The longest reply that a caller reads by itself."""
COMPANY = 16
"""Calls that are handed to the loop's thread without a try, after one whose turn was refused or left: other
threads are calling, or the replies are slow, and turns would only keep requests from being in flight together.
Twice as many each time that this happens again soon."""


class Exchange:
    """Carries out the calls of threads to one service."""

    __slots__ = ("_driver", "_post", "_protocol", "_turns")

    def __init__(self, driver: LineDriver, post: Callable[..., None]) -> None:
        """`post`: has something called on the loop's thread."""
        self._driver, self._post = driver, post
        self._protocol, self._turns = driver.protocol, driver.turns
        self._turns.caller_code = Exchange.ask.__code__

    def ask(self, call: Call, now: float) -> None:  # noqa: PLR0912, PLR0915 - stage by stage, in one place
        """Send the request: then the call is done, or the loop's thread has it, and the caller has to wait."""
        protocol, turns, driver = self._protocol, self._turns, self._driver
        request = call.request
        if driver.company > 0 or not protocol.attached or not turns.take(call):
            if driver.company > 0:
                driver.company -= 1
            elif protocol.attached:
                driver.expect_company(COMPANY)
            turns.leave_own()
            self._post(driver.submit, call)
            return
        line = driver.line()
        if line is None or not single_request.is_quiet(protocol, now):
            if turns.end(call):
                self._post(driver.submit, call)
            return
        call.line = line
        if line.is_heard:
            line.deafen()
        words = single_request.encode(protocol, request, now)
        tls = line.tls
        if call.is_left:
            return
        call.stage = SENDING
        if tls is not None:
            words = tls.encrypt(words)
        try:
            sent = line.send(words, NOW)
        except OSError as error:
            if error.errno not in NOT_NOW:
                self._leave_in_doubt(call, error)
                return
            sent = 0
        if call.is_left:
            return  # type: ignore[unreachable]  # Others set it.
        if sent != len(words):
            call.unsent = words[sent:]
            call.stage = SENT
            self._leave(call)
            return
        call.unsent = b""
        call.stage = RECEIVING
        try:
            data = line.receive(REPLY_BYTES)
        except OSError as error:
            if error.errno not in NOT_NOW:
                self._leave_in_doubt(call, error)
                return
            data = b""
        if call.is_left:
            return  # type: ignore[unreachable]  # Others set it.
        if not data:
            call.stage = SENT
            self._leave(call)
            return
        if tls is not None:
            try:
                data, _ = tls.decrypt(data)
            except SSLError:
                # Left as if interrupted: the connection is useless.
                self._leave(call)
            if call.is_left:
                return  # type: ignore[unreachable]  # Others set it.
        call.data = data
        call.stage = RECEIVED
        if not single_request.finish(protocol, request, _reply(line, data), call, driver.clock()):
            self._leave(call)
            return
        if not driver.is_ticking or protocol.session.waiting:
            line.listen()
            if now - driver.called_at < TICK_S and not driver.is_ticking:
                self._post(driver.tick_soon)
        driver.called_at = now
        driver.alone += 1
        turns.end(call)
        if protocol.wake_at < driver.due_at():
            self._post(driver.act)

    def _leave(self, call: Call) -> None:
        """Leave the rest to the loop's thread."""
        self._driver.expect_company(COMPANY)
        self._turns.leave(call)
        self._post(self._look, call)

    def _leave_in_doubt(self, call: Call, error: OSError) -> None:
        """A system call failed, or a signal handler raised this in it: what was sent or read is not known.

        It may be anything that a handler raises, `TimeoutError` most of all, after the bytes of a reply were taken
        from the socket. So nothing is concluded from it, and the stage stays; the handler's own is its caller's.
        """
        if error.errno is None:
            raise error
        if not call.is_left:
            self._leave(call)

    def _look(self, _: Call) -> None:
        with self._turns:
            pass


def _reply(line: Any, data: bytes) -> Any:
    """The one reply that there is; NOTHING if it is not exactly one."""
    reader = line.reader
    reader.feed(data)
    try:
        reply = reader.gets()
    except ProtocolError:
        return NOTHING
    if reader.has_data():
        line.renew_reader()
        return NOTHING
    return reply
