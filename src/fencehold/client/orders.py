"""Orders: what the protocol asks of the shell that has the sockets."""

from typing import NamedTuple, TypeAlias

from fencehold.drivers.address import Endpoint


class Connect(NamedTuple):
    """Connect to this node. Then call `on_connected`, or `on_disconnected` if it cannot be done."""

    endpoint: Endpoint


class Drop(NamedTuple):
    """Turn away from the connection, or from the attempt to make it: nothing it says matters any more."""

    park: bool
    """Leave it open until the next `Sweep`: closing it might cost the session its time."""


class Sweep(NamedTuple):
    """Close what was parked."""


Order: TypeAlias = Connect | Drop | Sweep
