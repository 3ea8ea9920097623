"""A wallet, workers that debit it under a lock, and one that is stopped while it holds it."""
