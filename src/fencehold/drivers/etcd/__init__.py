"""Calls to etcd, for the journal's engine and for the backend that locks directly.

`address` reads the URL, `transactions` says how they look, `failures` what a failed call means, `member` and
`cluster` make calls, over `http2`. Nothing here knows what the keys are for.
"""
