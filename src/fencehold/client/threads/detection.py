"""Which kind of threads an application has: checked when a portal is made, as patches come before that."""

import sys

from fencehold.client.threads.gates import RealThreads, Threads

_REAL = RealThreads()


def threads() -> Threads:
    """The kind of threads of this application now."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        from fencehold.client.threads.on_gevent import GeventThreads  # noqa: PLC0415 - it needs gevent

        return GeventThreads()
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        from fencehold.client.threads.on_eventlet import EventletThreads  # noqa: PLC0415 - it needs eventlet

        return EventletThreads()
    return _REAL


def are_real() -> bool:
    """Whether the threads of this application are real ones now."""
    return threads() is _REAL
