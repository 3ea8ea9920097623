"""A process that runs a job once: URL, name, tier, ttl of its client, at_most, at_least, and `quick` or `slow`:
the latter goes on until it is killed."""

import sys
import threading

import fencehold


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    url, name, tier, ttl, at_most, at_least, how = sys.argv[1:]
    client = fencehold.connect(url, ttl=float(ttl), connect_timeout=10)

    @client.once(name, at_most=float(at_most), at_least=float(at_least), tier=fencehold.Tier(tier), busy="raise")
    def job() -> None:
        if how == "slow":
            say("running")
            threading.Event().wait()

    job()
    # Not closed: a process that has done its job may just end.
    say("ran")


if __name__ == "__main__":
    main()
