"""Security checks: is anything sent unencrypted, are clients authenticated, are certificates and keys in order?

A server reports what it requires in INFO; for an older one there are no findings.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fencehold.cli.findings import Finding
from fencehold.drivers.address import is_loopback, service_address
from fencehold.errors import FenceholdError
from fencehold.security.certificates import read_der

SOON_DAYS = 14
_HOW = "docs/how-to/first-secured-cluster.md: `fencehold security init DIR` makes what is needed"


def server(facts: Mapping[str, Any], certificate: bytes | None) -> Iterator[Finding]:
    """Findings about the server that was reached."""
    if "auth" not in facts:
        return
    is_local = is_loopback(str(facts.get("listens_on", "")))
    yield _encryption(bool(facts["tls"]), is_local)
    yield _logins(str(facts["auth"]), str(facts.get("principal") or ""), is_local)
    if certificate is not None:
        yield expiry("certificate", read_der(certificate).not_after, datetime.now(UTC))


def _encryption(is_tls: bool, is_local: bool) -> Finding:
    if is_tls:
        return Finding("encryption", "ok", "TLS")
    if is_local:
        return Finding("encryption", "ok", "none, and only this machine can connect")
    return Finding("encryption", "warn", "none, and other machines can connect", f"speak TLS: {_HOW}")


def _logins(auth: str, principal: str, is_local: bool) -> Finding:
    if auth == "required":
        return Finding("logins", "ok", f"every client must authenticate; you are {principal or 'anonymous'}")
    if auth == "policy":
        return Finding("logins", "ok", f"the policy says who may do what; you are {principal or 'anonymous'}")
    if is_local:
        return Finding(
            "logins", "ok", "no authentication: every user of this machine can acquire and break any lock"
        )
    said = "no authentication: every client that can connect can acquire and break any lock"
    return Finding("logins", "warn", said, f"start it without --insecure: {_HOW}")


def expiry(check: str, not_after: datetime, now: datetime) -> Finding:
    """How long a certificate remains valid."""
    days = (not_after - now).days
    said = f"valid until {not_after:%Y-%m-%d %H:%M} UTC"
    if not_after <= now:
        return Finding(
            check, "fail", f"expired at {not_after:%Y-%m-%d %H:%M} UTC", "renew it: fencehold security renew"
        )
    if days < SOON_DAYS:
        return Finding(check, "warn", f"{said}: {days} days", "renew it: fencehold security renew")
    return Finding(check, "ok", said)


def own_files(url: str) -> Iterator[Finding]:
    """Whether others on this machine can read the keys that are named here."""
    named = [
        os.environ.get(variable, "") for variable in ("FENCEHOLD_KEY", "FENCEHOLD_TLS_KEY", "FENCEHOLD_TOKENS")
    ]
    # Errors in the URL were reported before, by the server check.
    with contextlib.suppress(FenceholdError):
        files = service_address(url).tls
        named.append(str(files.key or "") if files is not None else "")
    for path in dict.fromkeys(filter(None, named)):
        yield from _key(Path(path).expanduser())


def _key(path: Path) -> Iterator[Finding]:
    try:
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        yield Finding("key", "fail", f"{path}: {error.strerror}")
        return
    if mode & 0o007:
        yield Finding("key", "warn", f"every user here can read {path} (mode {mode:03o})", f"chmod o= {path}")
    else:
        yield Finding("key", "ok", f"{path} is not readable by every user")
