"""The messages of the gRPC interface: made of their description, every field of which is documented."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from fencehold.wire.messages import pool
from fencehold.wire.services import LOCK, SESSION, WATCH

ROOT = Path(__file__).parents[3]
PROTO = ROOT / "proto/fencehold/v1/fencehold.proto"
SERVICE_CONFIG = ROOT / "proto/fencehold/v1/service_config.json"


def test_messages_are_what_their_description_makes() -> None:
    """Those who change the description, or what is made of it by hand, are told to run `make stubs`."""
    ended = subprocess.run(
        [sys.executable, "scripts/stubs", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_reference_is_what_it_describes_makes() -> None:
    """Those who change a comment, or an operation of the HTTP listener, are told to run `make reference`."""
    ended = subprocess.run(
        [sys.executable, "scripts/reference", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_everything_in_the_description_is_documented() -> None:
    """Every service, RPC, message, field, enum and value has a comment: the reference is made of these."""
    lines = PROTO.read_text().splitlines()
    declared = re.compile(r"^\s*(service|rpc|message|enum|oneof|optional|repeated|map<|[A-Z_]+ = |[\w.]+ \w+ = )")
    bare = [
        line
        for above, line in pairwise(lines)
        if declared.match(line) and not line.startswith(("package", "option", "syntax")) and "//" not in above
    ]
    assert bare == []


def test_the_description_keeps_to_the_usual_style() -> None:
    """As buf's STANDARD rules have it: each RPC has messages of its own, and enums begin with nothing said."""
    for name in (LOCK, SESSION, WATCH):
        service = pool.FindServiceByName(name)
        assert service.name.endswith("Service")
        for method in service.methods:
            assert (method.input_type.name, method.output_type.name) == (
                f"{method.name}Request",
                f"{method.name}Response",
            )
    for enum in service.file.enum_types_by_name.values():
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper()
        assert [value.name for value in enum.values if not value.name.startswith(prefix + "_")] == []
        assert enum.values_by_number[0].name == f"{prefix}_UNSPECIFIED"


def test_only_what_is_safe_is_retried() -> None:
    """The service config names RPCs that are safe to repeat, and repeats them only when nothing happened."""
    (config,) = json.loads(SERVICE_CONFIG.read_text())["methodConfig"]
    assert config["retryPolicy"]["retryableStatusCodes"] == ["UNAVAILABLE"]
    named = {(each["service"], each["method"]) for each in config["name"]}
    for service, method in named:
        assert method in pool.FindServiceByName(service).methods_by_name
    # A second Break may hit the next holder, and a second Open is a second session.
    assert named.isdisjoint({(LOCK, "Break"), (SESSION, "Open")})
