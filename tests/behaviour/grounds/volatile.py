"""`fencehold://`, tier EFFICIENCY: the machine of an embedded server that has no disk on its way."""

from fencehold import EFFICIENCY
from tests.behaviour.grounds import fencehold


class GROUND(fencehold.GROUND):
    expected = fencehold.GROUND.expected._replace(
        linearizable=False, fenced=False, fence_survives_failover=False, survives_failover=False
    )
    tier = EFFICIENCY
