"""The commands that may run behind a fence in Redis, and which of their words are keys.

1. *A script names its keys beforehand*: a cluster finds the server by them, and permissions are checked for them.
   So only commands whose keys are known here are accepted.
2. *Redis does not undo what a script has done before one of its commands failed.* So mistakes that can be found
   are reported before anything is sent: an unknown command, too few words, a word of a wrong type.
3. *Only the guard touches marks.*
"""

from typing import Any, NamedTuple

from fencehold.errors import LimitExceeded, UsageError

COMMANDS_MAX = 1_000
"""In one transaction: Redis serves no other client meanwhile."""
WORDS_MAX = 4_000
"""Of one command: Lua passes no more than some 8 000 at a time."""


class Command(NamedTuple):
    """A command, checked."""

    words: tuple[bytes, ...]
    keys: tuple[bytes, ...]


class Shape(NamedTuple):
    """What a command looks like: which words after its name are keys, and how many there must be."""

    keys: slice
    least: int


_FIRST, _TWO, _ALL, _PAIRS = slice(0, 1), slice(0, 2), slice(0, None), slice(0, None, 2)
_TABLE = [
    (
        _FIRST,
        1,
        "GET GETDEL GETEX STRLEN INCR DECR PERSIST TTL PTTL TYPE HGETALL HKEYS HLEN HVALS LLEN LPOP RPOP "
        "SCARD SMEMBERS SPOP SRANDMEMBER XLEN ZCARD ZPOPMAX ZPOPMIN DUMP PFADD",
    ),
    (
        _FIRST,
        2,
        "SET SETNX GETSET APPEND INCRBY INCRBYFLOAT DECRBY GETBIT EXPIRE EXPIREAT PEXPIRE PEXPIREAT HDEL "
        "HEXISTS HGET HMGET HSTRLEN LINDEX LPUSH LPUSHX RPUSH RPUSHX SADD SISMEMBER SMISMEMBER SREM XDEL ZMSCORE "
        "ZRANK ZREM ZREVRANK ZSCORE",
    ),
    (
        _FIRST,
        3,
        "SETEX PSETEX SETRANGE GETRANGE SETBIT HINCRBY HINCRBYFLOAT HMSET HSET HSETNX LRANGE LREM LSET "
        "LTRIM XACK XRANGE XREVRANGE XTRIM ZADD ZCOUNT ZINCRBY ZLEXCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE "
        "ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYSCORE RESTORE",
    ),
    (_FIRST, 4, "GEOADD LINSERT XADD BITFIELD"),
    (_TWO, 2, "COPY RENAME RENAMENX RPOPLPUSH"),
    (_TWO, 3, "SMOVE"),
    (_TWO, 4, "LMOVE"),
    (_ALL, 1, "DEL UNLINK EXISTS TOUCH MGET SDIFF SINTER SUNION PFCOUNT"),
    (_ALL, 2, "SDIFFSTORE SINTERSTORE SUNIONSTORE PFMERGE"),
    (_PAIRS, 2, "MSET MSETNX"),
]
SHAPES = {name: Shape(keys, least) for keys, least, names in _TABLE for name in names.split()}


def command(prefix: bytes, *words: Any) -> Command:
    """Check a command as it would be sent.

    Raises:
        UsageError: it cannot run behind a fence, and the message says why.
        LimitExceeded: it has too many words.
    """
    name = _word("a command", words[0]).decode(errors="replace").upper() if words else ""
    shape = SHAPES.get(name)
    if shape is None:
        raise UsageError(f"{name!r} cannot run behind a fence: which of its words are keys is not known here")
    if len(words) > WORDS_MAX:
        raise LimitExceeded(f"a command behind a fence has {WORDS_MAX} words at the most, not {len(words)}")
    said = tuple(_word(name, word) for word in words[1:])
    if len(said) < shape.least:
        raise UsageError(f"{name} takes {shape.least} words or more after its name, not {len(said)}")
    keys = said[shape.keys]
    if any(key.startswith(prefix) for key in keys):
        raise UsageError(
            f"{name}: keys that begin with {prefix.decode()!r} are marks, which the guard alone touches"
        )
    return Command((name.encode(), *said), keys)


def _word(name: str, word: Any) -> bytes:
    """As redis-py would send it; it refuses the same types."""
    if isinstance(word, bytes | bytearray | memoryview):
        return bytes(word)
    if isinstance(word, str):
        return word.encode()
    if isinstance(word, int | float) and not isinstance(word, bool):
        return repr(word).encode()
    raise UsageError(f"{name}: a word is text, bytes or a number, not {word!r}")
