"""The file engine: a write-ahead log in a directory, for one node that needs no other process.

What each module owns:

- `directory`: the names of the files, the one owner, and how a file is replaced whole
- `records`: how an entry and a segment's head look as bytes
- `epochs`: the newest epoch
- `mark`: how far appends were acknowledged
- `segments`: reading a segment back: whole, torn or damaged
- `recovery`: what a directory holds, and what of it a crash may leave and opening may repair
- `log`: appending
- `snapshots`: keeping a snapshot, and reading it back
- `seeding`: beginning with a snapshot from elsewhere
- `cursor`: reading entries in order
- `worker`: a thread for blocking work
- `journal`: the port, and which thread does what
"""

from fencehold.engines.file.journal import FileJournal

__all__ = ["FileJournal"]
