"""TLS as a client speaks it: the files that a URL, the environment or a configuration names, made into a context.

1. `ca` says who signed the servers' certificates; without it those count that the system trusts. `cert` and `key`
   are presented to the server; the file of a certificate may hold its key as well.
2. There is one maker of contexts, for our own service and every other that is spoken to. TLS is 1.2 at least, and
   the name of the server is checked, unless a URL says that it is not to be.
3. A client of the service checks its files before each connection and reads them again if they changed, so that
   certificates can be renewed without a restart (`ClientTls`). While the new ones cannot be read, perhaps because
   they are being written, the old ones stay.
"""

import os
import ssl
from pathlib import Path

from fencehold.drivers.address import ServiceAddress, TlsFiles
from fencehold.errors import UsageError

VARIABLES = {"ca": "FENCEHOLD_CA", "cert": "FENCEHOLD_CERT", "key": "FENCEHOLD_KEY"}


def files_of(ca: str | None, cert: str | None, key: str | None) -> TlsFiles:
    """Files by their names; an empty one is none."""
    return TlsFiles(_path(ca), _path(cert), _path(key))


def _path(name: str | None) -> Path | None:
    return Path(name).expanduser() if name else None


def files_of_environment() -> TlsFiles:
    """What `$FENCEHOLD_CA`, `$FENCEHOLD_CERT` and `$FENCEHOLD_KEY` name."""
    return files_of(*(os.environ.get(variable) for variable in VARIABLES.values()))


def files_for(address: ServiceAddress) -> TlsFiles | None:
    """The files for a service: those of its URL, and of the environment; None: in plain text."""
    return None if address.tls is None else address.tls.over(files_of_environment())


def check_readable(files: TlsFiles) -> None:
    """See that the files are there: TLS itself would not say which of them was not.

    Raises:
        UsageError: one of them cannot be read.
    """
    for name, path in (("ca", files.ca), ("cert", files.cert), ("key", files.key)):
        try:
            if path is not None:
                path.open("rb").close()
        except OSError as error:
            raise UsageError(f"{name}={path} cannot be read: {error.strerror or error}") from None


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for connections to servers.

    Raises:
        UsageError: a file cannot be read, or is not what it should be; the message says which.
    """
    if files.key is not None and files.cert is None:
        raise UsageError("a key needs the certificate it belongs to: name cert=FILE, too")
    check_readable(files)
    # With a `ca`, no other authority is trusted.
    context = ssl.create_default_context() if files.ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.ca is not None:
        load_authorities(context, files.ca)
    if files.crl is not None:
        load_revocations(context, files.crl)
    if files.cert is not None:
        load_pair(context, files.cert, files.key or files.cert)
    if not files.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
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


def load_revocations(context: ssl.SSLContext, path: Path) -> None:
    """Refuse certificates that are on a list of a file, and those of authorities of which no list is there.

    Raises:
        UsageError: it cannot be read, or holds none, or something else as well.
    """
    try:
        if b"BEGIN CERTIFICATE" in path.read_bytes():
            # It would be trusted.
            raise UsageError(f"{path} is to hold lists of revoked certificates alone, and holds a certificate")
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise UsageError(f"{path} holds no list of revoked certificates (a CRL) in PEM form") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Show the certificate of a file, with its key.

    Raises:
        UsageError: one of them cannot be read, is none, or they do not belong together.
    """
    for path in (cert, key):
        try:
            path.open("rb").close()
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
    """Changes when one of some files was replaced or written."""
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
        self._stamp = stamp_of(*files.paths)
        self._context = client_context(files)

    def __call__(self) -> ssl.SSLContext:
        stamp = stamp_of(*self.files.paths)
        if stamp != self._stamp:
            try:
                self._context = client_context(self.files)
                self._stamp = stamp
            except UsageError:
                # Tried again with the next connection: they may be half written.
                pass
        return self._context
