"""Draws that depend on the seed alone.

Hypothesis also draws constants that it finds in the source of whatever has been imported. Elsewhere that is a
strength. Where a seed is noted because it soon shows something, it would show something else as soon as anybody
writes a number into any module of the suite.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis.internal.conjecture import providers


@contextmanager
def by_the_seed_alone() -> Iterator[None]:
    """Draw no constants of what is imported."""
    none = type(providers.GLOBAL_CONSTANTS)()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(providers, "_get_local_constants", lambda: none)
        providers.CONSTANTS_CACHE.cache.clear()
        try:
            yield
        finally:
            providers.CONSTANTS_CACHE.cache.clear()
