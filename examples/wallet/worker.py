"""A worker: debits the wallet so many times, each time under the lock. A process of its own, started by the story.

It is as careless as most are: it does not ask, before it writes, whether the lock is still its own. `hold.check()`
would narrow the gap. It cannot close it: a process can be stopped right after it has asked.
"""

import json
import sys
import time
from typing import NamedTuple

import fencehold
from examples.wallet.wallet import NAME, Wallet, opened


class Plan(NamedTuple):
    """The options of a worker."""

    name: str
    url: str
    where: str
    fenced: bool
    debits: int
    amount: int
    work_s: float
    ttl_s: float
    waits_in: int
    """In this debit its work takes as long as it takes, until a line on standard input; -1: in none."""


def say(what: str, **more: object) -> None:
    """Tell what was just done. All processes of a machine share this clock."""
    sys.stdout.write(json.dumps({"at": time.monotonic(), "what": what, **more}) + "\n")
    sys.stdout.flush()


def debit(client: fencehold.Client, wallet: Wallet, plan: Plan, waits: bool) -> bool:
    """Debit once; False if that was refused, and is to be done again."""
    say("asks")
    try:
        with client.lock(NAME, timeout=15) as hold:
            balance = wallet.read(hold)
            say("reads", fence=hold.fence, balance=balance, waits=waits)
            # Whatever takes time: a call to a provider, a report.
            sys.stdin.readline() if waits else time.sleep(plan.work_s)
            wallet.write(hold, balance - plan.amount)
            say("writes", fence=hold.fence, balance=balance - plan.amount)
    except fencehold.StaleFence as stale:
        say("refused", fence=stale.fence, mark=stale.mark)
        return False
    except fencehold.SessionExpired:
        say("again")
        return False
    except fencehold.HoldLost as lost:
        # Noticed at the end of the body, when all was written: too late for the wallet.
        say("lost", fence=lost.fence)
    return True


def main(plan: Plan) -> None:
    """Be the worker."""
    wallet = opened(plan.where, plan.fenced)
    with fencehold.connect(plan.url, ttl=plan.ttl_s, name=plan.name) as client:
        say("ready")
        sys.stdin.readline()
        for number in range(plan.debits):
            waits = number == plan.waits_in
            while not debit(client, wallet, plan, waits):
                waits = False
    wallet.close()


if __name__ == "__main__":
    main(Plan(**json.loads(sys.argv[1])))
