"""`memory://`: no server but the one inside this process."""

from fencehold import Guarantees
from tests.behaviour.ground import Ground


class GROUND(Ground):
    expected = Guarantees(
        backend="memory",
        linearizable=True,
        fenced=True,
        fence_survives_failover=True,
        fair=True,
        survives_failover=False,
        frees_on_crash=1.0,
        clocks="durations by monotonic clocks; for fences of a later process, that the time of day moves forward",
        shared=True,
        semaphores=True,
        at_least=True,
        multi=True,
        delays=True,
        watches=True,
    )
    is_shared_by_processes = False
    url = "memory://behaviour"
    dead_url = ""
