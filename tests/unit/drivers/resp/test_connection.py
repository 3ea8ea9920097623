"""A line: commands are answered in their order, or it is said what became of them."""

import asyncio
from typing import Any, cast

from fencehold.drivers.resp.connection import RespConnection, pack
from fencehold.drivers.resp.failures import Refusal, answered
from fencehold.errors import OutcomeUnknown, PermissionDenied, Unavailable, Unsupported, UsageError


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_aborted = False
        self.line: RespConnection | None = None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.is_aborted = True
        assert self.line is not None
        asyncio.get_running_loop().call_soon(self.line.connection_lost, None)


def line_on(answer_s: float = 5.0) -> tuple[RespConnection, Wire]:
    wire = Wire()
    line = wire.line = RespConnection("here", answer_s)
    line.connection_made(cast(Any, wire))
    return line, wire


def test_commands_of_one_turn_go_out_together() -> None:
    """The first at once, the others in one write; and each has its own answer, however the answers are cut."""

    async def main() -> None:
        line, wire = line_on()
        futures = [line.send(pack(("ECHO", str(number)))) for number in range(3)]
        await asyncio.sleep(0)
        assert len(wire.written) == 2
        data = b"$1\r\n0\r\n-ERR no\r\n:2\r\n"
        for at in range(len(data)):
            line.data_received(data[at : at + 1])
        first, second, third = [await future for future in futures]
        assert (first, str(second), third) == (b"0", "ERR no", 2)
        assert isinstance(second, Refusal)
        await line.close()

    asyncio.run(main())


def test_an_answer_nobody_waits_for_is_not_taken_for_another() -> None:
    """The one who stopped waiting was first."""

    async def main() -> None:
        line, _ = line_on()
        first, second = line.send(b"first"), line.send(b"second")
        first.cancel()
        line.data_received(b"+one\r\n+two\r\n")
        assert await second == b"two"
        await line.close()

    asyncio.run(main())


def test_a_line_that_is_lost_says_what_was_written() -> None:
    """What was may have happened; what was not has not."""

    async def main() -> None:
        line, _ = line_on()
        written = line.send(b"written")
        unwritten = line.send(b"unwritten")
        line.connection_lost(None)
        assert isinstance(await written, OutcomeUnknown)
        assert isinstance(await unwritten, Unavailable)
        assert isinstance(await line.send(b"later"), Unavailable)

    asyncio.run(main())


def test_no_answer_in_time_ends_the_line() -> None:
    """For all who wait on it."""

    async def main() -> None:
        line, wire = line_on(answer_s=0.01)
        replies = await asyncio.gather(line.send(b"a"), line.send(b"b"))
        assert all(isinstance(reply, OutcomeUnknown) for reply in replies)
        assert wire.is_aborted

    asyncio.run(main())


def test_messages_are_no_answers() -> None:
    """They come in between."""

    async def main() -> None:
        line, _ = line_on()
        heard: list[bytes] = []
        line.on_message = heard.append
        future = line.send(b"command")
        line.data_received(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n*2\r\n:1\r\n:2\r\n")
        assert await future == [1, 2]
        await asyncio.sleep(0)
        assert heard == [b"hello"]
        await line.close()

    asyncio.run(main())


def test_what_was_not_asked_or_is_no_resp_ends_the_line() -> None:
    """Nothing that comes after it can be trusted."""

    async def main() -> None:
        for data in (b"+unasked\r\n", b"HTTP/1.1 400 Bad Request\r\n"):
            line, wire = line_on()
            line.data_received(data)
            assert wire.is_aborted
            await line.close()

    asyncio.run(main())


def test_what_redis_refuses_is_told_apart() -> None:
    """Whether trying again helps is in the kind of the error."""
    kinds = {
        "READONLY You can't write against a read only replica.": Unavailable,
        "LOADING Redis is loading the dataset in memory": Unavailable,
        "OOM command not allowed when used memory > 'maxmemory'.": Unavailable,
        "MASTERDOWN Link with MASTER is down": Unavailable,
        "BUSY Redis is busy running a script.": Unavailable,
        "NOAUTH Authentication required.": PermissionDenied,
        "WRONGPASS invalid username-password pair or user is disabled.": PermissionDenied,
        "ERR AUTH <password> called without any password configured for the default user.": PermissionDenied,
        "NOPERM this user has no permissions to run the 'get' command": PermissionDenied,
        "ERR ACL failure in script: No permissions to access a key, on @user_script:1.": PermissionDenied,
        "WRONGTYPE Operation against a key holding the wrong kind of value": UsageError,
        "ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation against a key": UsageError,
        "ERR Error running script (call to f_1): @user_script: 3: -OOM command not allowed": Unavailable,
        "MOVED 3999 127.0.0.1:6381": Unsupported,
        "ERR unknown command `HELLO`": Unsupported,
    }
    for text, kind in kinds.items():
        assert isinstance(answered(Refusal(text), "here"), kind), text
    assert "replica" in str(answered(Refusal("READONLY x"), "here"))
    assert "out of memory" in str(answered(Refusal("ERR Error running script: @user_script: 3: -OOM x"), "here"))
