"""What an embedded server is given."""

import inspect
from typing import Any

from fencehold.doors.resp.bounds import Bounds
from fencehold.server import Config


def test_the_bounds_of_the_listener_are_taken_by_their_earlier_name() -> None:
    """`door` means `listener`, when a `Config` is made and when it is read; only one of the two is shown."""
    earlier: dict[str, Any] = {"door": Bounds(connections_max=5)}
    config = Config(**earlier)
    assert config == Config(listener=Bounds(connections_max=5))
    assert config.door is config.listener
    assert "door" not in inspect.signature(Config).parameters
