"""What every test of the clients begins with."""

import pytest

from fencehold.client.log import TELLERS


@pytest.fixture(autouse=True)
def nothing_was_told() -> None:
    """What other tests had logged counts for nobody's bound."""
    for teller in TELLERS:
        teller.reset()
