"""A lively, made-up company for the demo: services that lock what such services lock, with all that goes wrong.

`python -m rig.demo_services URL [PACE]`: until it is ended. Everything is drawn at random from a seed, so that two
runs look alike. One process has all services, each with a client, a host and a process number of its own; but for
the worker that is paused now and then, which is a real process that is really stopped.
"""

import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from fencehold import aio
from fencehold.errors import FenceholdError
from rig.processes import leash

PAUSED_S, RUNS_S = 16.0, 14.0
_TTL_S = 10.0
_AGAIN_S = 0.5


class Company:
    """All services, at a pace: 2 is twice as much as usual."""

    def __init__(self, url: str, pace: float = 1.0, seed: int = 7) -> None:
        self._url, self._pace = url, pace
        self._lot = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        async with contextlib.AsyncExitStack() as clients:
            for number in range(1, 5):
                client = await clients.enter_async_context(
                    self._client("checkout", f"web-{number}", 2100 + number)
                )
                for worker in range(3):
                    self._start(f"request-{worker}", self._checkout(client))
            for number in range(1, 4):
                client = await clients.enter_async_context(self._client("billing", f"bill-{number}", 880 + number))
                self._start("invoices", self._invoices(client))
                self._start("close-day", self._ledger(client))
            for number in range(1, 6):
                client = await clients.enter_async_context(self._client("transcoder", f"gpu-{number}", 6400))
                self._start("render", self._render(client))
            for number in range(1, 4):
                client = await clients.enter_async_context(self._client("search-indexer", f"idx-{number}", 71))
                self._start("reader", self._index(client, number))
            deploy = await clients.enter_async_context(self._client("deploy", "ci-runner-2", 30_412))
            self._start("migrate", self._migrate(deploy))
            for number in range(1, 4):
                waiting = await clients.enter_async_context(self._client("orders-api", f"api-{number}", 1))
                self._start("startup", self._wait_for(waiting, "db:migrate:orders"))
            cron = await clients.enter_async_context(self._client("scheduler", "cron-1", 512))
            self._start("leader", self._hold(cron, "cron:leader", 3_600))
            self._start("nightly-report", self._hold(cron, "cron:nightly-report", 240))
            stock = await clients.enter_async_context(self._client("warehouse", "wh-1", 4011))
            other = await clients.enter_async_context(self._client("pricing", "pr-1", 4012))
            self._start("restock", self._cross(stock, "stock:eu", "price:eu"))
            self._start("reprice", self._cross(other, "price:eu", "stock:eu"))
            for number, (has, wants) in enumerate(
                (("etl:raw", "etl:clean"), ("etl:clean", "etl:joined"), ("etl:joined", "etl:out"))
            ):
                etl = await clients.enter_async_context(self._client("etl", f"etl-{number + 1}", 93 + number))
                self._start(f"stage-{number + 1}", self._chain(etl, has, wants))
            sink = await clients.enter_async_context(self._client("etl", "etl-4", 97))
            self._start("stage-4", self._hold(sink, "etl:out", 45))
            for number in range(1, 4):
                wallet = await clients.enter_async_context(self._client("payments", f"pay-{number}", 300 + number))
                self._start("transfer", self._transfer(wallet))
            self._start("paused", self._pause_worker())
            await asyncio.gather(*self._tasks)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    @contextlib.asynccontextmanager
    async def _client(self, name: str, host: str, pid: int) -> AsyncIterator[aio.Client]:
        meta = {"host": host, "pid": pid, "version": "2026.11"}
        async with aio.connect(self._url, name=name, meta=meta, ttl=_TTL_S) as client:
            yield client

    async def _pause(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self._lot.uniform(least_s, most_s) / self._pace)

    async def _again(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something again and again, whatever becomes of it."""
        while True:
            try:
                await work()
            except FenceholdError:
                await asyncio.sleep(_AGAIN_S)

    # Services.

    async def _checkout(self, client: aio.Client) -> None:
        async def once() -> None:
            trace = f"00-{self._lot.getrandbits(128):032x}-{self._lot.getrandbits(64):016x}-01"
            order = self._lot.randrange(10_000, 99_999)
            async with client.lock(f"order:{order}", timeout=2, meta={"traceparent": trace}):
                await self._pause(0.2, 1.6)
            await self._pause(0.05, 0.8)

        await self._again(once)

    async def _invoices(self, client: aio.Client) -> None:
        async def once() -> None:
            async with client.lock(f"invoice:2026-11:{self._lot.randrange(1_000, 9_999)}", timeout=5):
                await self._pause(1, 4)

        await self._again(once)

    async def _ledger(self, client: aio.Client) -> None:
        async def once() -> None:
            async with client.lock("ledger:eu", timeout=8, meta={"job": "close-day"}):
                await self._pause(1.5, 5)
            await self._pause(0.2, 1)

        await self._again(once)

    async def _render(self, client: aio.Client) -> None:
        async def once() -> None:
            async with client.semaphore(
                "gpu-pool", 3, timeout=60, meta={"film": f"take-{self._lot.randrange(99)}"}
            ):
                await self._pause(4, 12)
            await self._pause(0.1, 1)

        await self._again(once)

    async def _index(self, client: aio.Client, number: int) -> None:
        async def once() -> None:
            lock = client.rwlock("catalog:index")
            if number == 1 and self._lot.random() < 0.3:
                async with lock.write():
                    await self._pause(1, 3)
            async with lock.read():
                await self._pause(2, 6)
            await self._pause(0.3, 2)

        await self._again(once)

    async def _migrate(self, client: aio.Client) -> None:
        async def once() -> None:
            async with client.lock("db:migrate:orders", meta={"release": "2026.11.3", "step": "add index"}):
                await self._pause(80, 120)
            await self._pause(3, 6)

        await self._again(once)

    async def _wait_for(self, client: aio.Client, name: str) -> None:
        async def once() -> None:
            async with client.lock(name):
                await self._pause(0.5, 1)
            await self._pause(5, 10)

        await self._again(once)

    async def _hold(self, client: aio.Client, name: str, seconds: float) -> None:
        async def once() -> None:
            async with client.lock(name):
                await self._pause(seconds, seconds)
            await self._pause(1, 3)

        await self._again(once)

    async def _cross(self, client: aio.Client, first: str, second: str) -> None:
        """Two that take the same names in another order: one of them is refused, and the other continues."""

        async def once() -> None:
            await self._pause(6, 18)
            async with client.lock(first):
                await self._pause(2, 5)
                async with client.lock(second):
                    await self._pause(1, 2)

        await self._again(once)

    async def _chain(self, client: aio.Client, has: str, wants: str) -> None:
        async def once() -> None:
            async with client.lock(has):
                await self._pause(1, 2)
                async with client.lock(wants, timeout=40):
                    await self._pause(2, 4)
            await self._pause(1, 4)

        await self._again(once)

    async def _transfer(self, client: aio.Client) -> None:
        async def once() -> None:
            async with client.lock("wallet:42", timeout=30):
                await self._pause(0.3, 1)
            await self._pause(2, 5)

        await self._again(once)

    async def _pause_worker(self) -> None:
        """A worker that is stopped while it holds, for longer than its lease, as by a long garbage collection."""
        # On a leash: if this process were killed while the worker is stopped, nothing would continue it.
        words = (*leash(None), sys.executable, "-m", "rig.demo_services", "--worker", self._url)
        while True:
            worker = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            try:
                assert worker.stdout is not None
                await worker.stdout.readline()
                await self._pause(2, 4)
                worker.send_signal(signal.SIGSTOP)
                await asyncio.sleep(PAUSED_S)
                worker.send_signal(signal.SIGCONT)
                await asyncio.sleep(RUNS_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    worker.kill()
                await worker.wait()


async def worker(url: str) -> None:
    """Holds a name for as long as it may."""
    async with aio.connect(url, name="payments-batch", meta={"host": "batch-7"}, ttl=_TTL_S) as client:
        while True:
            with contextlib.suppress(FenceholdError):
                async with client.lock("wallet:42", meta={"job": "settlement"}):
                    sys.stdout.write("held\n")
                    sys.stdout.flush()
                    await asyncio.sleep(60)
            await asyncio.sleep(1)


def main() -> None:
    """As a process of its own."""
    words = sys.argv[1:]
    work = (
        worker(words[1])
        if words[0] == "--worker"
        else Company(words[0], float(words[1]) if words[1:] else 1.0).run()
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(work)


if __name__ == "__main__":
    main()
