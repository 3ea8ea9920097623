"""The examples in other languages say to a real listener what their users would, and hear what they should."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.grpc_client import door
from tests.e2e.grpc_languages import check_failover
from tests.e2e.served import serving

ROOT = Path(__file__).parents[2]
INSTALL_S, RUN_S = 400, 60
PLUGINS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.10",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1",
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("served")
    with serving(place, "--memory") as server, door(place, "grpc", server.url) as port:
        yield f"127.0.0.1:{port}"


def run(*words: str, place: Path, seconds: int, **variables: str) -> str:
    """What a command writes; it ends well."""
    done = subprocess.run(
        words, cwd=place, env=os.environ | variables, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    # Maven resets the colours of a terminal, though there is none.
    return done.stdout.replace("\x1b[0m", "")


@pytest.fixture(scope="module")
def go_example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that grpc-go makes of the example, of code that its own plugins make."""
    tools = tmp_path_factory.mktemp("go")
    place = ROOT / "examples/go"
    for plugin in PLUGINS:
        run("go", "install", plugin, place=tools, seconds=INSTALL_S, GOBIN=str(tools))
    (line,) = re.findall(r"^//go:generate protoc (.*)$", (place / "generate.go").read_text(), re.MULTILINE)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    run(sys.executable, "-m", "grpc_tools.protoc", *line.split(), place=place, seconds=RUN_S, PATH=path)
    run("go", "vet", "./...", place=place, seconds=INSTALL_S)
    run("go", "build", "-o", str(tools / "locks"), ".", place=place, seconds=INSTALL_S)
    return tools / "locks"


def test_go(address: str, go_example: Path) -> None:
    """With grpc-go, as its users would."""
    said = run(str(go_example), address, place=ROOT / "examples/go", seconds=RUN_S).splitlines()
    assert re.fullmatch(r"held \d+", said[0])
    assert said[1:] == [
        "try true",
        "waited DeadlineExceeded",
        "next true",
        "lost true END_REASON_BROKEN",
        "refused EXPIRED",
    ]


def test_go_over_a_failover(go_example: Path, tmp_path: Path) -> None:
    """The leader dies under an open stream: no hold is lost."""
    check_failover([str(go_example), "ADDRESS", "hold"], ROOT / "examples/go", tmp_path)


MAVEN = ("mvn", "--batch-mode", "--no-transfer-progress", "--quiet")


def test_java(address: str) -> None:
    """With grpc-java, of code that Maven has made of the description."""
    place = ROOT / "examples/java"
    run(*MAVEN, "compile", place=place, seconds=INSTALL_S)
    said = run(*MAVEN, "exec:java", f"-Dexec.args={address}", place=place, seconds=INSTALL_S).splitlines()
    assert re.fullmatch(r"held \d+", said[0])
    assert said[1:] == [
        "try true",
        "waited DEADLINE_EXCEEDED",
        "next true",
        "lost true END_REASON_BROKEN",
        "refused EXPIRED",
    ]


def test_java_over_a_failover(tmp_path: Path) -> None:
    """The leader dies under an open stream: no hold is lost."""
    place = ROOT / "examples/java"
    run(*MAVEN, "compile", place=place, seconds=INSTALL_S)
    check_failover([*MAVEN, "exec:java", "-Dexec.args=ADDRESS hold"], place, tmp_path)


def test_jetcd(address: str) -> None:
    """etcd's own client for Java, with its lock and election clients, unmodified."""
    place = ROOT / "tests/matrix/jetcd"
    run(*MAVEN, "compile", place=place, seconds=INSTALL_S)
    said = run(*MAVEN, "exec:java", f"-Dexec.args={address}", place=place, seconds=INSTALL_S).splitlines()
    assert said == [
        "locked true",
        "again true",
        "waits true",
        "next true",
        "freed true",
        "leads first",
        "says second",
    ]


def test_etcd_locks_from_node(address: str) -> None:
    """With grpc-js and etcd's own description of its lock service."""
    place = ROOT / "examples/node"
    run("npm", "ci", "--no-audit", "--no-fund", place=place, seconds=INSTALL_S)
    # It is run where the packages are.
    script = (ROOT / "tests/matrix/etcd_locks.mjs").read_text()
    protos = str(ROOT / "src/fencehold/wire/etcd")
    words = ("node", "--input-type=module", "--eval", script, address, protos)
    assert run(*words, place=place, seconds=RUN_S).splitlines() == ["locked true", "waits true", "next true"]
