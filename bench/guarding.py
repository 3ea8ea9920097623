"""What a guard costs: the same transaction with and without it, on one Postgres that syncs every commit.

A *debit* is what a holder usually does: it reads a wallet, writes it, and writes a line in the ledger, by psycopg.
An *update* is the least there is to guard: it reads a row and writes it. Guarded, each enters first, which is one
statement more. They alternate, transaction by transaction, so that all meet disk and machine in the same mood.

*A round in which the disk hides statements is not judged.* A disk that others use may answer a sync at the next
tick of some clock, 4 ms apart: then every transaction takes as long, whatever it does before. A debit has one
statement more than an update; where that costs nothing, a guard seems to cost nothing, either. This leaves out
rounds that would speak for the guard. If no round can tell, the must is missed.
"""

import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import psycopg

from bench import folders
from bench.contest import Benchmark, Contest, Contestant
from bench.ensembles import Ensemble
from bench.musts import at_most
from bench.samples import Figures, Results
from fencehold.guards import Offer
from fencehold.guards.psycopg import Guard
from rig.postgres import Postgres

PAIRS = "guarded beside unguarded"
ROWS = 1_000
BAR = 1.3
"""How many times an unguarded transaction a guarded one may take."""
TELLING = 1.05
"""How many times an update a debit must take, for a round to tell what a statement costs."""

Transaction = Callable[["psycopg.Connection[Any]", int], None]


class Database(Ensemble):
    """One Postgres, and wallets in it."""

    def __init__(self) -> None:
        super().__init__("a Postgres")
        self._server: Postgres | None = None

    def start(self, folder: Path) -> None:
        # The server's user must reach its folder, which may be below one that only we can.
        self._server = Postgres(folders.reachable_folder())
        self._server.start()
        self._server.sql(
            "CREATE TABLE wallet (id integer PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50);"
            "CREATE TABLE ledger (id bigserial PRIMARY KEY, wallet integer NOT NULL, amount bigint NOT NULL);"
            f"INSERT INTO wallet SELECT id, 100 FROM generate_series(0, {ROWS - 1}) AS id"
        )

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            folders.remove(self._server.folder)

    def connect(self) -> "psycopg.Connection[Any]":
        assert self._server is not None
        return psycopg.connect(f"postgresql://owner@127.0.0.1:{self._server.port}/postgres")


def update(connection: "psycopg.Connection[Any]", number: int) -> None:
    """Read a wallet, and write it."""
    _write(connection, number)
    connection.commit()


def debit(connection: "psycopg.Connection[Any]", number: int) -> None:
    """Read a wallet, and write it, and write that down."""
    _write(connection, number)
    connection.execute("INSERT INTO ledger (wallet, amount) VALUES (%s, %s)", (number, 1))
    connection.commit()


def _write(connection: "psycopg.Connection[Any]", number: int) -> None:
    row = connection.execute("SELECT balance FROM wallet WHERE id = %s", (number,)).fetchone()
    assert row is not None
    connection.execute("UPDATE wallet SET balance = %s WHERE id = %s", (row[0] - 1, number))


def guarded(guard: Guard, transaction: Transaction) -> Transaction:
    """The same, after entering."""

    def entered(connection: "psycopg.Connection[Any]", number: int) -> None:
        guard.enter(connection, Offer(f"wallet:{number}", 7))
        transaction(connection, number)

    return entered


class Pairs(Contestant):
    """All kinds of transactions by turns; gives the median of each, and how many times the bare one it is."""

    def __init__(self, database: Database, transactions: int) -> None:
        super().__init__(PAIRS)
        self._database = database
        self._transactions = transactions

    def setup(self) -> None:
        self._connection = self._database.connect()
        guard = Guard()
        guard.create(self._connection)
        self._connection.commit()
        self._kinds: dict[str, Transaction] = {
            "debit": debit,
            "guarded_debit": guarded(guard, debit),
            "update": update,
            "guarded_update": guarded(guard, update),
        }

    def teardown(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.close()

    def round(self) -> Figures:
        taken = compared(self._connection, self._kinds, self._transactions)
        times = {f"{kind}_times": taken[f"guarded_{kind}"] / taken[kind] for kind in ("debit", "update")}
        return {**{f"{kind}_p50_us": each for kind, each in taken.items()}, **times}


def compared(
    connection: "psycopg.Connection[Any]", kinds: dict[str, Transaction], transactions: int
) -> dict[str, float]:
    """The median microseconds of each kind of transaction, run by turns on one connection."""
    taken: dict[str, list[int]] = {kind: [] for kind in kinds}
    for number in range(transactions):
        for kind, transaction in kinds.items():
            begun = perf_counter_ns()
            transaction(connection, number % ROWS)
            taken[kind].append(perf_counter_ns() - begun)
    return {kind: statistics.median(each) / 1_000 for kind, each in taken.items()}


def build(quick: bool) -> Contest:
    """The contest."""
    database = Database()
    return Contest(
        contestants=[Pairs(database, 300 if quick else 2_000)],
        rounds=3 if quick else 7,
        fixtures=[database],
        musts=[at_most("a guarded debit, times an unguarded one", _debit_times, BAR, "×")],
    )


def _debit_times(results: Results) -> float:
    """The median over the rounds that can tell.

    Raises:
        LookupError: none can.
    """
    debits, updates = results.series(PAIRS, "debit_p50_us"), results.series(PAIRS, "update_p50_us")
    times = results.series(PAIRS, "debit_times")
    telling = [times[number] for number in times if debits[number] >= TELLING * updates[number]]
    if not telling:
        raise LookupError("no round can tell: the disk takes as long for a debit as for an update")
    return statistics.median(telling)


BENCHMARK = Benchmark("guarding", "a guarded transaction in Postgres beside the same one unguarded", build)
