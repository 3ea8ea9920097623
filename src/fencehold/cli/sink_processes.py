"""Sinks beside a node: the table `[sinks]` of the configuration, and the processes that `serve` starts for it.

::

    [sinks]
    cluster = "prod"
    audit = "postgresql://fencehold@db/audit?table=lock_events"
    kafka = { url = "kafka://k1,k2/locks", prefix = "jobs:", from = "now" }

1. A sink never runs in the node's process. It is started, watched and ended as listeners are (`listeners`).
2. Its URL may have a password: it is handed over in the environment, never as an argument that others can see.
3. Where nodes share a journal, each starts all sinks, and of each the one that holds its lock delivers.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fencehold.cli.listener_processes import url_of
from fencehold.drivers.address import shown
from fencehold.errors import UsageError
from fencehold.server import Config

TARGET_VARIABLE = "FENCEHOLD_SINK"
STATUS_VARIABLE = "FENCEHOLD_SINK_STATUS"
SINKS_MAX = 32
_OF_ALL = ("cluster", "status", "user", "secret_file", "token_file")
_OF_EACH = ("url", "prefix", "from")
_LOCK = "fencehold:sinks:"


class SinkSetting(NamedTuple):
    """One sink of the configuration."""

    name: str
    url: str
    prefix: str = ""
    start: str = "beginning"


class SinkSettings(NamedTuple):
    """The table `[sinks]`."""

    sinks: tuple[SinkSetting, ...] = ()
    cluster: str = "main"
    status: str = ""
    environment: Mapping[str, str] = {}
    """Their credentials, as environment variables."""


def sinks_of(table: Mapping[str, Any]) -> SinkSettings:
    """Read the table.

    Raises:
        UsageError: something in it is wrong; the message names it.
    """
    said = {key: _text(f"sinks.{key}", table[key]) for key in _OF_ALL if key in table}
    cluster = said.get("cluster", "main")
    found = tuple(_sink(name, value) for name, value in table.items() if name not in _OF_ALL)
    if len(found) > SINKS_MAX:
        raise UsageError(f"[sinks] has at most {SINKS_MAX} sinks")
    for sink in found:
        # Here, as most servers have none.
        from fencehold.sinks.registry import sink_of  # noqa: PLC0415

        try:
            sink_of(sink.url, cluster)
        except UsageError as wrong:
            raise UsageError(f"sinks.{sink.name}: {wrong}") from None
    names = {
        "user": "FENCEHOLD_USER",
        "secret_file": "FENCEHOLD_SECRET_FILE",
        "token_file": "FENCEHOLD_TOKEN_FILE",
    }
    environment = {names[key]: value for key, value in said.items() if key in names}
    return SinkSettings(found, cluster, said.get("status", ""), environment)


def _sink(name: str, value: Any) -> SinkSetting:
    if not name.replace("-", "").replace("_", "").isalnum():
        raise UsageError(f"sinks.{name}: the name of a sink has letters, digits, - and _")
    if isinstance(value, str):
        return SinkSetting(name, value)
    if not isinstance(value, dict) or "url" not in value:
        raise UsageError(f'sinks.{name} is a URL, or a table with one: {name} = {{ url = "kafka://…" }}')
    for key in value:
        if key not in _OF_EACH:
            raise UsageError(f"sinks.{name}: {key} is not known; known are {', '.join(_OF_EACH)}")
    said = {key: _text(f"sinks.{name}.{key}", value[key]) for key in value}
    return SinkSetting(name, said["url"], said.get("prefix", ""), said.get("from", "beginning"))


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{key} is a text")
    return value


def shown_sinks(settings: SinkSettings) -> dict[str, Any]:
    """As it may be shown: without secrets."""
    return {sink.name: shown(sink.url) for sink in settings.sinks}


def command_of_sink(
    sink: SinkSetting, settings: SinkSettings, config: Config, node_port: int, *, as_json: bool
) -> tuple[list[str], dict[str, str]]:
    """How a sink beside a node is started: its command, and its environment variables."""
    words = [sys.executable, "-m", "fencehold.cli", "sink", "run", "--with-parent"]
    words += ["--url", url_of(config, node_port), "--name", sink.name, "--cluster", settings.cluster]
    words += ["--from", sink.start] + (["--prefix", sink.prefix] if sink.prefix else [])
    # Of the nodes of a cluster, one at a time delivers.
    words += ["--lock", f"{_LOCK}{sink.name}"] if config.engine else []
    environment = {TARGET_VARIABLE: sink.url, **settings.environment}
    if settings.status or os.environ.get(STATUS_VARIABLE):
        environment[STATUS_VARIABLE] = str(Path(settings.status or os.environ[STATUS_VARIABLE]).expanduser())
    return words + (["--json"] if as_json else []), environment
