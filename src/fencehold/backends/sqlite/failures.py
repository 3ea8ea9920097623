"""What an error of SQLite says about the world.

1. Whatever fails before the commit is rolled back: certainly nothing happened.
2. A commit that fails may have written all that makes it one, and be found by whoever reads the file next: its
   outcome is unknown. `file` knows which of the two it was; here are the words.
"""

import os
import sqlite3
from pathlib import Path

from fencehold.errors import FenceholdError, OutcomeUnknown, PermissionDenied, Unavailable, UsageError

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_FOREIGN = (sqlite3.SQLITE_NOTADB,)


def code_of(error: sqlite3.Error) -> int:
    """The kind of an error, without its details."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another connection has what was wanted."""
    return code_of(error) in _LOCKED


def failure(error: sqlite3.Error, path: Path) -> FenceholdError:
    """What it means that a step failed before its commit."""
    code = code_of(error)
    if code in _LOCKED:
        return Unavailable(f"{path} is locked by another process that does not end its transaction ({error})")
    if code in _FORBIDDEN:
        return PermissionDenied(f"{path} cannot be written to by this user ({error})")
    if code in _FOREIGN:
        return UsageError(f"{path} is there, and is no SQLite database: name another file")
    if code == sqlite3.SQLITE_CANTOPEN:
        return unopened(path)
    return Unavailable(f"{path}: SQLite said: {error}")


def unopened(path: Path) -> FenceholdError:
    """Why a file cannot be opened."""
    if path.is_dir():
        return UsageError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        return Unavailable(f"the folder {path.parent} is not there: make it first")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        return PermissionDenied(f"{path} cannot be written to by this user: it needs the file and its folder")
    return Unavailable(f"{path} cannot be opened")


def doubt(error: sqlite3.Error, path: Path) -> OutcomeUnknown:
    """What it means that a commit failed."""
    return OutcomeUnknown(f"{path}: whether it was written is unknown: {error}")
