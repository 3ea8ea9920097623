"""Calls to etcd, for whoever keeps something there: the journal's engine, and the backend that locks directly.

`address` reads the URL, `transactions` says how they look, `failures` what a failed call means, `member`, `forked`
and `cluster` make calls. Nothing here knows what the keys are for.
"""

import os

# gRPC's own care for forks ends children at random when a call is under way in the parent. Without it they live,
# and call by another library: see `forked`. It is read when gRPC is imported, so callers import this first.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
