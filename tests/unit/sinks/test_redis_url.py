"""The URL of a stream in Redis: its own options, and those of the server."""

from fencehold.drivers.address import Login
from fencehold.sinks.redis_stream import RedisStream


def test_an_option_of_the_stream_is_one_however_it_is_spelled() -> None:
    """It is read, and then it is not the server's."""
    sink = RedisStream.of("REDIS://ann:p%40s@h/2?%73tream=mine&max%6Cen=7")
    assert (sink._stream, sink._maxlen) == ("mine", 7)
    assert (sink._address.server.db, sink._address.server.login) == (2, Login("ann", "p@s"))
