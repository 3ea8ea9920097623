"""gRPC from Node, by the example that its users would start from: it compiles nothing beforehand."""

import re
import subprocess
from pathlib import Path

from tests.e2e.grpc_client import door
from tests.e2e.grpc_languages import NODE, check_failover
from tests.e2e.served import PATIENCE_S, Served


def test_a_client_in_node_is_told_what_it_should_be(server: Served, tmp_path: Path) -> None:
    """A lock with its fence, a try, a withdrawal, the next one, a loss, a refusal."""
    assert (NODE / "node_modules").is_dir(), "its packages are missing: make servers"
    with door(tmp_path, "grpc", server.url) as port:
        done = subprocess.run(
            ["node", "locks.mjs", f"127.0.0.1:{port}"],
            cwd=NODE,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert re.fullmatch(r"held \d+", said[0])
    assert said[1:] == ["try null", "cancelled", "next true", "lost true 2", "refused FAILED_PRECONDITION"]


def test_a_client_in_node_loses_no_hold_when_the_leader_dies(tmp_path: Path) -> None:
    """Its stream stays open, over a listener that goes to the next leader."""
    check_failover(["node", "locks.mjs", "ADDRESS", "hold"], NODE, tmp_path)
