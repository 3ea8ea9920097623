"""A process that holds a name until it is killed: URL, name, tier, ttl of its client."""

import sys
import threading

import fencehold


def main() -> None:
    url, name, tier, ttl = sys.argv[1:]
    with (
        fencehold.connect(url, ttl=float(ttl), connect_timeout=10) as client,
        client.lock(name, tier=fencehold.Tier(tier), timeout=10),
    ):
        sys.stdout.write("held\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
