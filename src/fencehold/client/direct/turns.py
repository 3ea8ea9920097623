"""Turns: a client's protocol and its connection are one caller's, or the loop's, never of both at once. Laws:

1.  *One at a time.* A turn is taken by an entry in a dict, which is atomic, and names the holder of the turn:
    there is no moment at which it is taken by an unknown holder, wherever an interrupt comes.
2.  *A caller touches nothing but what is its own.* In its turn it sends one request, while nothing else is in
    flight, and reads one reply to it. Whatever else comes, pushes and errors too, it leaves to the loop's thread,
    with every byte that it has read. So all that the protocol decides is decided on the loop's thread, which no
    signal interrupts.
3.  *What a caller is about to do is recorded first* (`Call.stage`). A caller that is interrupted leaves its turn
    as it is; the loop's thread continues from the record. Only for an interrupt inside a system call it is not
    known what was sent or read: then the connection is in doubt. The loop's thread makes another one, resumes the
    session there, and repeats the request under its id.
4.  *No turn of a caller is long*: it spins for a moment (`spin`), waits for its reply for `PATIENCE_S`, and
    leaves the rest to the loop's thread. So a keep-alive waits no longer than that behind a caller, plus the time
    in which other threads have the interpreter.
5.  *The loop goes first.* While it waits for its turn, no caller begins one.
6.  *A thread never waits for itself.* A signal handler, or a finalizer, may use the client in the middle of a turn
    of the same thread: that turn is left to the loop's thread then, and its caller waits for the reply like any
    other.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import CodeType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from fencehold.client.protocol import single_request
from fencehold.client.protocol.requests import Acquire, Release
from fencehold.client.protocol.session import SessionProtocol
from fencehold.client.threads.gates import LockGate
from fencehold.client.threads.loop import Slip

if TYPE_CHECKING:
    from fencehold.client.direct.line import Line

Given = ParamSpec("Given")
Result = TypeVar("Result")

PATIENCE_S = 0.005
"""How long a caller waits for its reply before it leaves that to the loop's thread."""
LOOK_S = 0.05
"""How often the loop's thread checks whether a turn that it waits for is over, in case it is not notified."""
LOST_S = 1.0
"""After which time it checks whether the thread that has the turn is still in it."""

CLAIMED, SENDING, SENT, RECEIVING, RECEIVED = range(5)
"""How far a call is: nothing is sent; perhaps some is; the request is sent; perhaps some of the reply was read;
the reply is in `Call.data`."""

_TURN = "turn"

get_ident = threading.get_ident


class Call(Slip):
    """The call of a thread: the promise of its request, and how far it is."""

    __slots__ = ("data", "is_left", "line", "stage", "thread", "unsent")

    request: "Acquire | Release"  # type: ignore[assignment]  # Never none: it is made first.
    line: "Line"
    unsent: bytes
    """What the socket did not take; set when the call is left."""

    def __init__(self) -> None:
        self.is_done = False
        self._error = self._gate = self.result = None  # type: ignore[assignment]  # It has a gate when it waits.
        self.stage = CLAIMED
        self.data = b""
        self.is_left = False
        self.thread = get_ident()

    def set_result(self, result: Any, /) -> None:
        self.result, self.is_done = result, True
        if self._gate is not None:
            self._gate.open()

    def set_exception(self, error: BaseException, /) -> None:
        self._error, self.is_done = error, True
        if self._gate is not None:
            self._gate.open()

    def wait(self) -> Any:
        if not self.is_done:
            gate = self._gate = LockGate()
            # After the gate was noted: either this is seen here, or the gate is seen there.
            if not self.is_done:
                gate.wait()
        if self._error is not None:
            raise self._error
        return self.result


class Turns:
    """Whose turn it is. As a context manager it takes the loop's turn, which may be nested."""

    __slots__ = ("_depth", "_freed", "_holder", "caller_code", "is_wanted", "on_over", "settle")

    def __init__(self) -> None:
        self._holder: dict[str, Any] = {}
        """The holder of the turn: a call, or this object for the loop."""
        self.is_wanted = False
        """Whether the loop waits for it."""
        # A plain lock that callers only release: anything larger could be left half done by an interrupt.
        self._freed = threading.Lock()
        self._freed.acquire()
        self._depth = 0
        self.settle: Callable[[Call], None] = lambda _: None
        """Continues a call that was left; in the loop's turn."""
        self.on_over: Callable[[], None] = lambda: None
        """Called at the end of a turn of the loop."""
        self.caller_code: CodeType | None = None
        """The code that a caller is in for as long as its turn lasts."""

    # For callers.

    def take(self, call: Call) -> bool:
        """Take the turn, if it is free and the loop does not wait for it."""
        return not self.is_wanted and self._holder.setdefault(_TURN, call) is call

    def end(self, call: Call) -> bool:
        """The turn is over; False if it was left before."""
        is_own = not call.is_left
        if is_own:
            del self._holder[_TURN]
        if self.is_wanted:
            self._tell()
        return is_own

    def leave(self, call: Call) -> None:
        """Leave the rest to the loop's thread, if it is not done."""
        call.is_left = True
        if self.is_wanted:
            self._tell()

    def _tell(self) -> None:
        with suppress(RuntimeError):
            # Notified already.
            self._freed.release()

    def leave_own(self) -> None:
        """Leave the turn of the calling thread, if it is in one."""
        holder = self._holder.get(_TURN)
        if isinstance(holder, Call) and holder.thread == get_ident():
            self.leave(holder)

    # For the loop.

    def take_at_once(self) -> bool:
        """Enter, if that can be done without waiting."""
        if self._depth == 0 and self._holder.setdefault(_TURN, self) is not self:
            return False
        self._depth += 1
        return True

    def __enter__(self) -> None:
        if self._depth == 0 and self._holder.setdefault(_TURN, self) is not self:
            self._wait()
        else:
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        try:
            if self._depth == 1:
                self.on_over()
        finally:
            self._depth -= 1
            if self._depth == 0:
                del self._holder[_TURN]

    def _wait(self) -> None:
        waited_s = 0.0
        self.is_wanted = True
        # After that: either the end of a turn is seen here, or this thread is notified.
        holder = self._holder.setdefault(_TURN, self)
        while holder is not self:
            if holder.is_left or (waited_s >= LOST_S and not self._is_inside(holder)):
                holder.is_left = True
                self._holder[_TURN] = self
                break
            if not self._freed.acquire(timeout=LOOK_S):
                waited_s += LOOK_S
            holder = self._holder.setdefault(_TURN, self)
        self.is_wanted = False
        self._depth = 1
        if holder is not self:
            try:
                self.settle(holder)
            except BaseException:
                self.__exit__()
                raise

    def _is_inside(self, call: Call) -> bool:
        """Whether a caller is still in its turn: one that is interrupted twice may not have marked it as left."""
        frame = sys._current_frames().get(call.thread)
        while frame is not None:
            if frame.f_code is self.caller_code:
                return True
            frame = frame.f_back
        return False


def _in_turn(
    method: Callable[Concatenate[Any, Given], Result],
) -> Callable[Concatenate[Any, Given], Result]:
    @wraps(method)
    def guarded(self: Any, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        with self.turns:
            return method(self, *args, **kwargs)

    return guarded


class SharedProtocol(SessionProtocol):
    """A protocol that callers use in their turns. Its public methods are for the loop's thread, in its turn."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.turns = Turns()

    ready = _in_turn(SessionProtocol.ready)
    acquire = _in_turn(SessionProtocol.acquire)
    withdraw = _in_turn(SessionProtocol.withdraw)
    release = _in_turn(SessionProtocol.release)
    extend = _in_turn(SessionProtocol.extend)
    read = _in_turn(SessionProtocol.read)
    close = _in_turn(SessionProtocol.close)
    submit = _in_turn(single_request.submit)
    on_connected = _in_turn(SessionProtocol.on_connected)
    on_disconnected = _in_turn(SessionProtocol.on_disconnected)
    on_connection_closed = _in_turn(SessionProtocol.on_connection_closed)
    on_data = _in_turn(SessionProtocol.on_data)
    on_timer = _in_turn(SessionProtocol.on_timer)
    # By which tests end a client.
    _on_closed = _in_turn(SessionProtocol._on_closed)
