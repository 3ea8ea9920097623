"""The machine against its model, in conversations that nobody thought of.

`make test` runs 300 of them, a quarter of a minute, and 600 with `LONG=1`. `FENCEHOLD_EXAMPLES` is how many: 100
for a quick look (seconds), 20000 for a night::

    FENCEHOLD_EXAMPLES=100 .venv/bin/pytest tests/property/test_machine_model.py

A failure is printed as the shortest conversation that shows it, and comes again at the next run (`.hypothesis`).
"""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.depth import deep
from tests.property.conversation import Conversation, make_small

EXAMPLES = int(os.environ.get("FENCEHOLD_EXAMPLES", deep("300", "600")))
PROFILE = settings(
    max_examples=EXAMPLES,
    stateful_step_count=60,
    derandomize=False,
    print_blob=True,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G2")
@pytest.mark.guarantee("G4")
@pytest.mark.guarantee("G5")
@pytest.mark.guarantee("G6")
@pytest.mark.guarantee("G8")
@pytest.mark.guarantee("G9")
@pytest.mark.guarantee("G11")
@pytest.mark.guarantee("G12")
@pytest.mark.guarantee("G13")
def test_the_machine_does_what_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is told in whatever order, the machine agrees with the model and keeps the guarantees."""
    make_small(monkeypatch)
    run_state_machine_as_test(Conversation, settings=PROFILE)
