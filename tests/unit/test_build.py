"""Which build runs, and that both do the same. `make compiled-tests` runs it where a compiled one is installed."""

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import fencehold
from fencehold import build

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fencehold"
MODULES: tuple[str, ...] = runpy.run_path(str(ROOT / "scripts" / "compiled"))["MODULES"]

_REPLAY = """
import hashlib, random
from fencehold.core.commands import *
from fencehold.core.machine import Machine
from fencehold.journal.codec import decode, encode

dice, machine, told = random.Random(7), Machine(), hashlib.sha256()
names = [f"name:{number}" for number in range(12)] + ["ümläut"]
position = request = 0

def some(session):
    global request
    request += 1
    asked = tuple(dice.sample(names, dice.choice((1, 1, 1, 2, 3))))
    fence, answered = dice.randrange(1, machine.fence + 2), dice.randrange(request)
    mode = dice.choice((Mode.EXCLUSIVE, Mode.EXCLUSIVE, Mode.SHARED))
    return dice.choice((
        lambda: Acquire(session, asked[:1], request, answered),
        lambda: Acquire(session, asked, request, answered, "task", mode, 0, dice.choice((-1, 0, 500))),
        lambda: Acquire(session, ("permits",), request, answered, "", Mode.PERMIT, 2, 0, 900, 50, "{}"),
        lambda: AcquireAtLeast(session, asked[:1], request, answered, wait_ms=0, at_least_ms=300),
        lambda: Release(session, asked[:1], fence, request, answered),
        lambda: Release(session, tuple(names), fence),
        lambda: Extend(session, asked[:1], fence, 700, request, answered),
        lambda: Cancel(session, request - 1),
        lambda: Settle(session, (request - 2,)),
        lambda: Break(asked[0], 0, "operator"),
        lambda: Renew((session, session + 1)),
        lambda: Suspend(session),
        lambda: CloseSession(session),
        lambda: OpenSession(2_000, 500, "secret", "meta"),
        lambda: OpenSession(60_000),
    ))()

for _ in range(1_500):
    commands = tuple(some(dice.randrange(1, 30)) for _ in range(dice.randrange(6)))
    entry = decode(encode(Entry(dice.choice((0, 0, 1, 40, 400)), commands)))
    position += 1
    told.update(repr(machine.apply(position, entry)).encode())
print(machine.state_hash(), told.hexdigest(), machine.fence)
"""


def test_the_modules_to_be_compiled_are_there_and_have_no_structs() -> None:
    """msgspec reads the fields of a struct from its class, which a compiled one does not have as it expects."""
    for module in MODULES:
        bases = [ast.unparse(base) for node in _classes(_tree(module)) for base in node.bases]
        assert "Struct" not in bases, module


def test_no_class_that_stays_interpreted_has_a_compiled_base() -> None:
    """Compiled code takes an object of such a class for none of its base, and fails where it gets one."""
    compiled = {
        f"fencehold.{module.replace('/', '.')}.{node.name}"
        for module in MODULES
        for node in _classes(_tree(module))
    }
    for file in SOURCE.rglob("*.py"):
        module = str(file.relative_to(SOURCE).with_suffix(""))
        if module in MODULES:
            continue
        tree = _tree(module)
        imported = {
            name.asname or name.name: f"{node.module}.{name.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        for node in _classes(tree):
            for base in map(ast.unparse, node.bases):
                first, dot, rest = base.partition("[")[0].partition(".")
                assert imported.get(first, first) + dot + rest not in compiled, f"{node.name} in {module}"


def test_source_is_found_where_both_are() -> None:
    """With FENCEHOLD_PURE=1 nothing compiled is imported, whichever wheel is installed."""
    asked = (
        "from fencehold import build\nfrom fencehold.core import machine\nprint(build.kind(), machine.__file__)"
    )
    kind, file = _run(asked, FENCEHOLD_PURE="1").split()
    assert (kind, Path(file).name) == ("pure", "machine.py")


def test_the_finder_leaves_other_packages_alone() -> None:
    """It knows where the source of this package is, and of nothing else."""
    package = str(Path(fencehold.__file__).parent / "core")
    found = build.SourceFinder.find_spec("fencehold.core.machine", [package])
    assert found is not None
    assert str(found.origin).endswith("machine.py")
    assert build.SourceFinder.find_spec("fencehold.core.nothing", [package]) is None
    assert build.SourceFinder.find_spec("json.decoder", [package]) is None


@pytest.mark.parametrize("word", ["", "0"])
def test_the_variable_set_to_nothing_changes_nothing(word: str) -> None:
    """An empty one, or 0, is as none."""
    assert _run("from fencehold import build; print(build.kind())", FENCEHOLD_PURE=word) == build.kind()


@pytest.mark.guarantee("G12")
def test_both_builds_make_the_same_state_of_the_same_entries() -> None:
    """The same entries make the same bytes and are told the same, compiled or not, whatever the hash seed."""
    here = _run(_REPLAY, FENCEHOLD_PURE="", PYTHONHASHSEED="1")
    pure = _run(_REPLAY, FENCEHOLD_PURE="1", PYTHONHASHSEED="2")
    assert here == pure
    assert int(here.split()[-1]) > 100


def _tree(module: str) -> ast.Module:
    return ast.parse((SOURCE / f"{module}.py").read_text())


def _classes(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    return done.stdout.strip()
