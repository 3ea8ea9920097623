"""A small put into a 3-member etcd: by Fencehold's own calls, and by gRPC's library, by turns.

What a call costs on this side is on the way of every acquire, and keeps a processor from doing anything else.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from time import perf_counter, perf_counter_ns, process_time_ns

import uvloop

from bench import latency
from bench.cluster import OnCluster
from bench.contest import Benchmark, Contest
from bench.ensembles import Etcd
from bench.musts import at_most, median
from bench.samples import Figures

BESIDE = "own calls beside gRPC's"
_STRETCH = 20
_VALUE = b"x" * 100
_WORDS = {"timeout": 0.5, "metadata": (("hasleader", "true"),)}

Put = Callable[..., Awaitable[object]]


def puts(endpoint: str, seconds: float) -> Figures:
    """Both, in one process and on one event loop."""
    from bench import v3lock  # noqa: PLC0415
    from fencehold.drivers.etcd import messages, services  # noqa: PLC0415 - each load needs only its own library
    from fencehold.drivers.etcd.http2.channel import Channel  # noqa: PLC0415

    async def main() -> Figures:
        channels = {"own": Channel(endpoint), "grpc": v3lock.channel(endpoint)}
        took_ns: dict[str, list[int]] = defaultdict(list)
        worked_ns: dict[str, int] = defaultdict(int)
        try:
            until = perf_counter() + seconds
            while perf_counter() < until:
                for name, channel in channels.items():
                    begun = process_time_ns()
                    await _stretch(services.KV(channel).Put, messages.PutRequest, took_ns[name])
                    worked_ns[name] += process_time_ns() - begun
        finally:
            for channel in channels.values():
                await channel.close()
        return _compared(took_ns, worked_ns)

    return uvloop.run(main())


async def _stretch(put: Put, request: Callable[..., object], took_ns: list[int]) -> None:
    for number in range(_STRETCH):
        begun = perf_counter_ns()
        await put(request(key=b"bench/put/%d" % number, value=_VALUE), **_WORDS)
        took_ns.append(perf_counter_ns() - begun)


def _compared(took_ns: dict[str, list[int]], worked_ns: dict[str, int]) -> Figures:
    p50_us = {name: latency.percentile(sorted(each), 50) / 1e3 for name, each in took_ns.items()}
    cpu_us = {name: worked_ns[name] / len(each) / 1e3 for name, each in took_ns.items()}
    return {
        "own_p50_us": p50_us["own"],
        "grpc_p50_us": p50_us["grpc"],
        "times_grpc": p50_us["own"] / p50_us["grpc"],
        "own_cpu_us": cpu_us["own"],
        "grpc_cpu_us": cpu_us["grpc"],
        "times_grpc_cpu": cpu_us["own"] / cpu_us["grpc"],
    }


def build(quick: bool) -> Contest:
    """The contest."""
    etcd = Etcd()
    return Contest(
        contestants=[OnCluster(BESIDE, puts, etcd.where, seconds=2.0 if quick else 5.0)],
        rounds=3 if quick else 7,
        warmups=0 if quick else 1,
        fixtures=[etcd],
        musts=[
            at_most("a put's p50, times gRPC's", median(BESIDE, "times_grpc"), 1, "×"),
            at_most(
                "a put's processor time on this side, times gRPC's", median(BESIDE, "times_grpc_cpu"), 0.6, "×"
            ),
        ],
    )


BENCHMARK = Benchmark("calls", "Calls to etcd, by Fencehold's own HTTP/2 and by gRPC's library", build)
