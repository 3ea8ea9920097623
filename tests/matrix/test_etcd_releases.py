"""The etcd engine on the etcd releases of today: its contract, and a leader that dies. Debian's is older."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD_S, TEST_S = 900, 900
RELEASES = ("v3.5.35", "v3.6.16", "v3.7.3")
KEPT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fencehold-matrix"
MAIN = """package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""
"""etcd's own module cannot be installed by its version, as it replaces modules beside it."""


def run(words: list[str], place: Path, seconds: int, **variables: str) -> str:
    done = subprocess.run(
        words, cwd=place, env=os.environ | variables, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout


def built(release: str) -> Path:
    """The folder with that etcd, made once."""
    place = KEPT / f"etcd-{release}"
    if (place / "etcd").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    (place / "main.go").write_text(MAIN)
    (place / "go.mod").unlink(missing_ok=True)
    for words in (
        ["go", "mod", "init", "etcd"],
        ["go", "get", f"go.etcd.io/etcd/server/v3@{release}"],
        ["go", "mod", "tidy"],
        ["go", "build", "-o", "etcd.new", "."],
    ):
        run(words, place, BUILD_S)
    (place / "etcd.new").rename(place / "etcd")
    return place


@pytest.mark.parametrize("release", RELEASES)
def test_the_engine_on_a_release(release: str) -> None:
    """What the port promises, with members that die; and holds that outlive the leader among the nodes."""
    place = built(release)
    assert f"etcd Version: {release.removeprefix('v')}" in run([str(place / "etcd"), "--version"], place, 30)
    path = f"{place}{os.pathsep}{os.environ['PATH']}"
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    run([*words, "tests/contract"], ROOT, TEST_S, PATH=path, ENGINE="etcd")
    run([*words, "tests/e2e/test_grpc_failover.py"], ROOT, TEST_S, PATH=path)


def test_elections_and_locks_are_answered_as_by_a_release_of_today() -> None:
    """The conversation that is held with Debian's etcd, with the newest one."""
    path = f"{built(RELEASES[-1])}{os.pathsep}{os.environ['PATH']}"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run([*words, "tests/e2e/test_grpc_etcd.py", "-k", "answers_the_same"], ROOT, TEST_S, PATH=path)
