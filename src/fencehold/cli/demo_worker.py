"""A worker of the demo: `python -m fencehold.cli.demo_worker URL WALLET TTL FENCED AMOUNT`.

It reports on stdout what it has done, one line of JSON each, and waits for a line on stdin between reading and
writing, which is where it is stopped. It writes without checking again, as most code does: a check of the clock
would only make the gap smaller, since the pause can come after the check.
"""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import fencehold


def open_wallet(path: Path, amount: int) -> None:
    """Make a wallet with this amount in it, that has seen no fence yet."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE wallet (balance INTEGER NOT NULL, fence INTEGER NOT NULL)")
        database.execute("INSERT INTO wallet VALUES (?, 0)", (amount,))


def balance(path: Path) -> int:
    """How much is in it."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT balance FROM wallet").fetchone()
    return int(found[0])


def write(path: Path, amount: int, fence: int | None) -> bool:
    """Set the balance; with a fence, only if no greater one was seen: check and write are one step."""
    with closing(sqlite3.connect(path)) as database, database:
        if fence is None:
            return database.execute("UPDATE wallet SET balance = ?", (amount,)).rowcount == 1
        change = "UPDATE wallet SET balance = ?, fence = ? WHERE fence <= ?"
        return database.execute(change, (amount, fence, fence)).rowcount == 1


def main() -> None:
    """Withdraw, once."""
    url, path, ttl, fenced, amount = sys.argv[1:]
    wallet = Path(path)
    with fencehold.connect(url, ttl=float(ttl), grace=min(1.0, float(ttl)), name="demo") as client:
        hold = client.lock(wallet.stem).acquire()
        if hold is None:
            sys.exit("not acquired, though there was no timeout")
        _say("granted", fence=hold.fence)
        found = balance(wallet)
        _say("read", balance=found)
        sys.stdin.readline()
        done = write(wallet, found - int(amount), hold.fence if int(fenced) else None)
        _say("written" if done else "refused")
        sys.stdin.readline()


def _say(said: str, **facts: int) -> None:
    sys.stdout.write(json.dumps({"said": said, **facts}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
