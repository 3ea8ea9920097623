"""Backup: write a journal to one file, and start a journal from such a file.

- `frames`: the format of a backup
- `replay`: from a snapshot and the entries after it to a machine
- `journal_export`: a journal into a file, without disturbing the leader
- `journal_import`: a file into an empty journal, with fences that never go back
"""

from fencehold.backup.frames import Head
from fencehold.backup.journal_export import export, survey, write_snapshot
from fencehold.backup.journal_import import Loaded, Restored, fence_after, load, restore
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
