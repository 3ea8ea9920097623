"""Rates: how many commands a second each principal has sent, against its quota.

A bucket for each principal that has a quota holds as many commands as may come in one second, and fills at that
rate. It is this node's alone: how much comes is not part of the replicated state.
"""

from collections import OrderedDict

from fencehold.core.policy import QuotaMode
from fencehold.core.quotas import NamedQuota

BUCKETS_MAX = 16_384


class Rates:
    """The buckets of one node."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By principal: how many commands are left, and when that was."""
        self.exceeded: dict[str, int] = {}
        """How often each quota was met, by name."""

    def wait_ms(self, principal: str, quota: NamedQuota, now_ms: float) -> int:
        """Take one command out of a principal's bucket; if it is empty, returns in how many milliseconds it is
        not."""
        name, terms = quota
        per_s = terms.commands_per_s
        left, at_ms = self._buckets.get(principal, (float(per_s), now_ms))
        left = min(float(per_s), left + (now_ms - at_ms) / 1000 * per_s)
        if left >= 1:
            self._buckets[principal] = (left - 1, now_ms)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
            return 0
        self._buckets[principal] = (left, now_ms)
        self.exceeded[name] = self.exceeded.get(name, 0) + 1
        return 0 if terms.mode is QuotaMode.COUNT else max(1, round((1 - left) / per_s * 1000))
