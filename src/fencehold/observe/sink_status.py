"""How sinks are doing, for the page of metrics: from the files in which they say so (`fencehold sink status`).

They run beside the nodes, not in them; what they say is small, and read when the page is.
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

_FILE_BYTES_MAX = 65_536
_SINKS_MAX = 64
_STALE_S = 60.0
"""One that has said nothing for so long is not running."""
_COUNTED = {
    "fencehold_sink_delivered_total": "delivered",
    "fencehold_sink_retried_total": "retried",
    "fencehold_sink_dropped_total": "dropped",
    "fencehold_sink_gaps_total": "gaps",
    "fencehold_sink_waiting": "waiting",
    "fencehold_sink_lag_positions": "lag_positions",
    "fencehold_sink_lag_seconds": "lag_s",
}

Figures = dict[str, list[list[Any]]]


def usual_folder() -> Path:
    """Where sinks of this user write how they are doing, unless told otherwise."""
    return Path(tempfile.gettempdir()) / f"fencehold-sinks-{os.getuid()}"


def figures_of_sinks(folder: Path) -> Figures:
    """By metric: the name of each sink, and a number. A file that makes no sense is passed over."""
    found: Figures = {}
    for facts in _told(folder):
        name = str(facts.get("name", ""))[:128]
        is_up = bool(facts.get("running")) and time.time() - _number(facts, "written_unix") < _STALE_S
        found.setdefault("fencehold_sink_up", []).append([[name], int(is_up and not _trouble(facts))])
        for metric, key in _COUNTED.items():
            found.setdefault(metric, []).append([[name], _number(facts, key)])
    return found


def _trouble(facts: dict[str, Any]) -> Any:
    """Of its target, or of the service that it reads."""
    return facts.get("error") or facts.get("service_error")


def _told(folder: Path) -> list[dict[str, Any]]:
    try:
        if folder.stat().st_uid != os.getuid():
            # In a folder that all users share, another may have made it.
            return []
        files = sorted(folder.glob("*.json"))[:_SINKS_MAX]
    except OSError:
        return []
    return [facts for facts in map(_read, files) if facts.get("name")]


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            facts = json.loads(opened.read(_FILE_BYTES_MAX))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _number(facts: dict[str, Any], key: str) -> float:
    value = facts.get(key)
    return value if isinstance(value, int | float) else 0
