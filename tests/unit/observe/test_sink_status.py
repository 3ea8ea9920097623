"""What sinks say of themselves, on the page of metrics."""

import json
import time
from pathlib import Path

from fencehold.observe.catalogue import BY_NAME
from fencehold.observe.page import page
from fencehold.observe.sink_status import figures_of_sinks


def test_sinks_are_shown_by_name(tmp_path: Path) -> None:
    """One that runs, one that has ended, and nothing of a file that makes no sense."""
    told = {
        "name": "kafka",
        "running": True,
        "written_unix": time.time(),
        "delivered": 5,
        "lag_s": 1.5,
        "error": None,
    }
    (tmp_path / "kafka.json").write_text(json.dumps(told))
    (tmp_path / "old.json").write_text(json.dumps({**told, "name": "old", "written_unix": 1.0}))
    (tmp_path / "silent.json").write_text(json.dumps({**told, "name": "silent", "service_error": "denied"}))
    (tmp_path / "torn.json").write_text('{"name": "to')
    (tmp_path / "list.json").write_text("[1]")
    figures = figures_of_sinks(tmp_path)
    assert figures["fencehold_sink_up"] == [[["kafka"], 1], [["old"], 0], [["silent"], 0]]
    assert figures["fencehold_sink_delivered_total"][0] == [["kafka"], 5]
    assert figures.keys() <= BY_NAME.keys()
    assert b'fencehold_sink_lag_seconds{sink="kafka"} 1.5' in page(figures)


def test_without_sinks_there_is_nothing(tmp_path: Path) -> None:
    """Not even a folder."""
    assert figures_of_sinks(tmp_path / "none") == {}
