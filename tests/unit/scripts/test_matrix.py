"""Whether the matrix of clients in other languages has passed with what is here."""

import importlib.util
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "matrix"


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, for a repository of two files, with which the matrix has passed."""
    loader = SourceFileLoader("matrix_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PARTS", ("proto", "tests/matrix"))
    for name, text in (("proto/a.proto", "message A {}"), ("tests/matrix/test_it.py", "def test_it(): ...")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    (tmp_path / module.PASSED).write_text("".join(f"{module.digest(part)} {part}\n" for part in module.PARTS))
    return module


def test_it_need_not_run_again_with_what_it_passed_with(matrix: ModuleType, tmp_path: Path) -> None:
    """What it passed with is not a part of it; nor is what git does not know."""
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    (tmp_path / "proto" / "left_over.pyc").write_text("")
    assert matrix.changed() == []


def test_it_runs_again_when_a_file_of_a_part_changed(matrix: ModuleType, tmp_path: Path) -> None:
    """By what the file holds: its bytes, not its time."""
    (tmp_path / "proto/a.proto").write_text("message B {}")
    assert matrix.changed() == ["proto"]
    (tmp_path / "proto/a.proto").write_text("message A {}")
    assert matrix.changed() == []


def test_it_runs_again_when_a_file_of_a_part_came_or_went(matrix: ModuleType, tmp_path: Path) -> None:
    """Moved counts, too: its path is a part of what passed."""
    (tmp_path / "proto/a.proto").rename(tmp_path / "proto/b.proto")
    assert matrix.changed() == ["proto"]
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    assert matrix.changed() == ["proto"]


def test_it_runs_if_it_never_passed(matrix: ModuleType, tmp_path: Path) -> None:
    """All parts are told."""
    (tmp_path / matrix.PASSED).unlink()
    assert matrix.changed() == ["proto", "tests/matrix"]


def test_a_part_that_is_gone_is_told(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never be found changed again."""
    monkeypatch.setattr(matrix, "PARTS", ("gone",))
    with pytest.raises(SystemExit, match=r"gone: nothing is there\. If it has moved"):
        matrix.changed()


def test_the_parts_are_there() -> None:
    """Of this repository; what is listed here is no file of a past layout."""
    asked = subprocess.run([SCRIPT], cwd=SCRIPT.parents[1], capture_output=True, text=True, check=False)
    assert asked.stdout.startswith("matrix   "), asked.stderr
