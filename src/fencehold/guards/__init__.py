"""Guards: what makes a resource refuse a stale holder.

A lock alone does not prevent a paused holder from writing when it wakes up. The resource does, by
remembering the greatest fence it has seen for a name, its *mark* (a high watermark):

1. *A fence below the mark is refused* with `StaleFence`, and nothing is written. One that is equal is the same
   holder's; one that is greater raises the mark.
2. *Check and write are one atomic step*: one transaction, one script, one conditional request. Never two.
3. *A new holder raises the mark first, then reads* (`enter`): otherwise a late write of the old holder slips
   in between the new holder's read and its write.
4. *A guard never passes silently*: without a fence, with the fence of another name, with a claim instead of a
   hold, or, if `strict`, with a name that has no mark, it raises.

Each module guards one kind of resource, and needs its driver only: import the one you use.
"""

from fencehold.guards.offer import Offer, offer_of

__all__ = ["Offer", "offer_of"]
