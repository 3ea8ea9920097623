"""Invariants: checks that stay on in production, because a wrong grant is worse than no service."""

from fencehold.errors import InvariantViolated


def invariant(holds: bool, law: str) -> None:
    """End the process's work here unless the law holds. Unlike `assert`, never compiled away."""
    if not holds:
        raise InvariantViolated(law)
