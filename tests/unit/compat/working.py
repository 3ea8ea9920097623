"""A process that works under a lock with a shadow: ``python -m tests.unit.compat.working PORT URL FILE WHO …``."""

import sys
from contextlib import suppress

import redis
from redis.exceptions import LockNotOwnedError

from fencehold.compat.redis import Shadow


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(port: str, url: str, file: str, who: str, name: str, timeout: str) -> None:
    """Lock when told to, and work until told to stop: each by a line."""
    say("ready")
    sys.stdin.readline()
    with (
        redis.Redis(port=int(port)) as server,
        Shadow(server, url, file, name=who) as shadow,
        # What redis-py says of a lock that ran out is not what is asked here.
        suppress(LockNotOwnedError),
        shadow.lock(name, timeout=float(timeout), sleep=0.01),
    ):
        say("locked")
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
