"""Alert rules, by Prometheus' own tool: it takes them, and they fire when they should and not before."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "deploy/observe/alert-rules.yaml"


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tool, if need be out of Debian's package, of which nothing else is installed."""
    found = shutil.which("promtool")
    if found is not None:
        return found
    folder = tmp_path_factory.mktemp("prometheus")
    subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=True, capture_output=True)
    (package,) = folder.glob("prometheus_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder / "files"], check=True)
    return str(folder / "files/usr/bin/promtool")


def test_prometheus_takes_the_rules(promtool: str) -> None:
    """Every expression is one."""
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_rules_fire_when_they_should(promtool: str, tmp_path: Path) -> None:
    """Nobody leads, a holder is late, somebody waits for long, the journal is slow."""
    shutil.copy(RULES, tmp_path)
    shutil.copy(HERE / "alert-rules-test.yaml", tmp_path)
    command = [promtool, "test", "rules", "alert-rules-test.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
