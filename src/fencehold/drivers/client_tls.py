"""TLS as a client speaks it: which files it uses, and a context that follows them when they are replaced.

1. `ca` says who signed the servers' certificates; without it those count that the system trusts. `cert` and `key`
   are what the server is shown, and belong together.
2. Files are looked at before each connection and read again if they changed, so that certificates can be renewed
   without a restart. While the new ones cannot be read, perhaps because they are being written, the old ones stay.
3. The name of the server is always checked, and TLS is 1.2 at least.
"""

import os
import ssl
from pathlib import Path
from typing import NamedTuple

from fencehold.errors import UsageError

VARIABLES = {"ca": "FENCEHOLD_CA", "cert": "FENCEHOLD_CERT", "key": "FENCEHOLD_KEY"}


class TlsFiles(NamedTuple):
    """What TLS is made of; None where nothing was named."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def over(self, farther: "TlsFiles") -> "TlsFiles":
        """These, and what is named farther away where these name nothing. A certificate comes with its key."""
        own, far = (self, self) if self.cert or self.key else (self, farther)
        return TlsFiles(self.ca or farther.ca, own.cert or far.cert, own.key or far.key)


def files_of(ca: str | None, cert: str | None, key: str | None) -> TlsFiles:
    """Files by their names; an empty one is none."""
    return TlsFiles(*(Path(name).expanduser() if name else None for name in (ca, cert, key)))


def files_of_environment() -> TlsFiles:
    """What `$FENCEHOLD_CA`, `$FENCEHOLD_CERT` and `$FENCEHOLD_KEY` name."""
    return files_of(*(os.environ.get(variable) for variable in VARIABLES.values()))


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for connections to servers.

    Raises:
        UsageError: a file cannot be read, or is not what it should be; the message says which.
    """
    if (files.cert is None) != (files.key is None):
        raise UsageError("a client certificate needs its key: name both cert=FILE and key=FILE, or none")
    # One that names who signed trusts nobody else.
    context = ssl.create_default_context() if files.ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.ca is not None:
        load_authorities(context, files.ca)
    if files.cert is not None and files.key is not None:
        load_pair(context, files.cert, files.key)
    return context


def load_authorities(context: ssl.SSLContext, path: Path) -> None:
    """Trust the certificates of a file.

    Raises:
        UsageError: it cannot be read, or holds none.
    """
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise UsageError(f"{path} holds no certificate of an authority in PEM form") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Show the certificate of a file, with its key.

    Raises:
        UsageError: one of them cannot be read, is none, or they do not belong together.
    """
    for path in (cert, key):
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        # Never asks at a terminal for the pass phrase of a key.
        context.load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"the key in {key} is not that of the certificate in {cert}") from None
        raise UsageError(f"{cert} and {key} are no certificate and its unlocked key in PEM form") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot use {cert} with {key}: {error}") from None


Stamp = tuple[tuple[int, int, int] | None, ...]


def stamp_of(*paths: Path | None) -> Stamp:
    """What tells that one of some files was replaced or written."""
    return tuple(_stamp(path) for path in paths if path is not None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_ino, known.st_mtime_ns, known.st_size


class ClientTls:
    """A context for each connection, made of what the files hold then."""

    def __init__(self, files: TlsFiles) -> None:
        """Read them.

        Raises:
            UsageError: as `client_context`.
        """
        self.files = files
        self._stamp = stamp_of(*files)
        self._context = client_context(files)

    def __call__(self) -> ssl.SSLContext:
        stamp = stamp_of(*self.files)
        if stamp != self._stamp:
            try:
                self._context = client_context(self.files)
                self._stamp = stamp
            except UsageError:
                # Tried again with the next connection: they may be half written.
                pass
        return self._context
