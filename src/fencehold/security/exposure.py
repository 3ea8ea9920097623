"""Where a server may listen without TLS, or without authentication: where no other machine can connect, or if told
so."""

from fencehold.drivers.address import is_loopback
from fencehold.errors import UsageError


def check_host(host: str, *, insecure: bool, tls: bool = False, asks: bool = False) -> None:
    """Raise `UsageError` for a listener that other machines can reach and that is not secured, unless
    `insecure`."""
    if insecure or is_loopback(host):
        return
    if not tls:
        raise UsageError(
            f"{host} can be reached from other machines, and nothing would be encrypted: add --tls-cert FILE and "
            "--tls-key FILE (`fencehold security init DIR` makes them), or listen on 127.0.0.1; or add --insecure "
            "if every client on that network may acquire and break any lock"
        )
    if not asks:
        raise UsageError(
            f"{host} can be reached from other machines, and no client would have to authenticate: leave out "
            "--auth none, or add --insecure if every client on that network may acquire and break any lock"
        )
