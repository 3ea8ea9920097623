"""A process that holds a name on etcd, and works under its hold when told to: URL, name, ttl of its client."""

import sys

import fencehold


def main() -> None:
    url, name, ttl = sys.argv[1:]
    with fencehold.connect(url, ttl=float(ttl), connect_timeout=10) as client:
        hold = client.lock(name, timeout=10).acquire()
        assert isinstance(hold, fencehold.Hold)
        say(f"held {hold.fence}")
        for _ in sys.stdin:
            try:
                hold.check()
                say("worked")
            except fencehold.HoldLost:
                say("lost")
                break
        try:
            hold.release()
        except fencehold.HoldLost as error:
            say(f"was lost: {error.reason}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
