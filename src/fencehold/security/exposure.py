"""Where a server may listen in the clear, or for everybody: where no other machine can connect, or if so told."""

from fencehold.drivers.address import is_loopback
from fencehold.errors import UsageError


def check_host(host: str, *, insecure: bool, tls: bool = False, asks: bool = False) -> None:
    """Raise `UsageError` for a listener that other machines can reach and that is not secured, unless so said."""
    if insecure or is_loopback(host):
        return
    if not tls:
        raise UsageError(
            f"{host} can be reached from other machines, and nothing would be encrypted: add --tls-cert FILE and "
            "--tls-key FILE (`fencehold security init DIR` makes them), or listen on 127.0.0.1; or add --insecure "
            "if everybody on that network may acquire and break any lock"
        )
    if not asks:
        raise UsageError(
            f"{host} can be reached from other machines, and nobody would have to authenticate: leave out "
            "--auth none, or add --insecure if everybody on that network may acquire and break any lock"
        )
