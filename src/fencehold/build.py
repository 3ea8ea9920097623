"""Which build runs: Python as it is read, or with its hot modules compiled (docs/how-to/compiled-build.md).

A compiled wheel has every module as source, too. With `FENCEHOLD_PURE=1` only the source is imported: to compare,
to debug, or to keep working if a compiled module is faulty.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType

PURE = "FENCEHOLD_PURE"
"""The environment variable; empty and `0` are as if it were not set."""

_HOT = "fencehold.core.machine"
_COMPILED = (".so", ".pyd")


class SourceFinder:
    """Finds the modules of this package as source, before any other finder finds them compiled."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("fencehold."):
            return None
        for place in path or ():
            spec = FileFinder(place, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name, target)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def prefer_source() -> None:
    """Import no compiled module from here on."""
    sys.meta_path.insert(0, SourceFinder)


def is_compiled() -> bool:
    """Whether the hot modules are, or would be, imported compiled."""
    spec = find_spec(_HOT)
    return spec is not None and (spec.origin or "").endswith(_COMPILED)


def kind() -> str:
    """In a word, for people."""
    return "compiled" if is_compiled() else "pure"
