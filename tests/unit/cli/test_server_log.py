"""What a server writes into its log by itself, beside what its observer finds."""

import logging

import pytest

from fencehold.cli import server_process
from fencehold.cli.server_process import Serving
from fencehold.core.events import Event, Kind
from fencehold.locks.log import PER_MINUTE
from fencehold.server import Config


def test_broken_holds_are_told_with_principals_and_a_flood_of_them_is_a_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of every kind: an operator may break ten thousand holds with one word."""
    # It would take the log of this process.
    monkeypatch.setattr(server_process, "log_to_stderr", lambda _: None)
    serving = Serving(Config(), as_json=True, on_port=lambda _: None)
    with caplog.at_level(logging.WARNING, "fencehold"):
        for fence in range(1, 100):
            event = Event(Kind.BROKEN, fence, 0, 3, "t", ("a",), fence, by="ops", principal="service/billing")
            serving._say_broken(event, "user/alice")
    facts = [record.facts for record in caplog.records if record.msg == "broken"]  # type: ignore[attr-defined]
    assert [each["fence"] for each in facts] == list(range(1, PER_MINUTE + 1))
    assert (facts[0]["principal"], facts[0]["by_principal"]) == ("service/billing", "user/alice")
    assert len(caplog.records) == PER_MINUTE + 1
