"""The file engine: a write-ahead log in a directory, for one node that needs no other process.

What each module owns:

- `directory`: the names of the files, the one owner, and how a file is replaced whole
- `segments`: how entries look as bytes, reading a segment back (whole, torn or damaged), reading entries in order
- `marks`: the newest epoch, and how far appends were acknowledged
- `recovery`: what a directory holds, and what of it a crash may leave and opening may repair
- `log`: appending
- `snapshots`: keeping a snapshot, reading it back, beginning with one from elsewhere
- `worker`: a thread for blocking work, and when an append is handed to it
- `journal`: the port, and which thread does what
"""

from fencehold.engines.file.journal import FileJournal

__all__ = ["FileJournal"]
