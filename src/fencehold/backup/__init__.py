"""Backup: a journal in one file, and a journal that begins with what such a file holds.

- `frames`: how a backup looks as bytes
- `replay`: from a snapshot and the entries after it to a machine
- `exporting`: a journal into a file, beside whoever leads
- `importing`: a file into an empty journal, with fences that never go back
"""

from fencehold.backup.exporting import export, survey, write_snapshot
from fencehold.backup.frames import Head
from fencehold.backup.importing import Loaded, Restored, fence_after, load, restore
from fencehold.backup.replay import Contents

__all__ = [
    "Contents",
    "Head",
    "Loaded",
    "Restored",
    "export",
    "fence_after",
    "load",
    "restore",
    "survey",
    "write_snapshot",
]
