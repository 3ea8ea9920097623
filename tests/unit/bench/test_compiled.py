"""The compiled build is measured where it is installed, and of no other source than this."""

from pathlib import Path

import pytest

from bench import compiled, embedded


def _installed(folder: Path, text: str) -> Path:
    package = folder / "lib" / "python3.11" / "site-packages" / "fencehold"
    (package / "core").mkdir(parents=True)
    (package / "core" / "machine.py").write_text(text)
    (package / "core" / "machine.cpython-311-x86_64-linux-gnu.so").touch()
    return folder


def _source(folder: Path, text: str) -> Path:
    (folder / "core").mkdir(parents=True)
    (folder / "core" / "machine.py").write_text(text)
    return folder


def test_it_is_found_where_it_was_compiled_of_this_source(tmp_path: Path) -> None:
    """Its interpreter runs it."""
    environment = _installed(tmp_path / "venv", "one")
    assert compiled.python(environment, _source(tmp_path / "src", "one")) == str(environment / "bin" / "python")


def test_one_of_other_source_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its figures would be of something else."""
    assert compiled.python(_installed(tmp_path / "venv", "one"), _source(tmp_path / "src", "two")) is None
    assert "make compiled-build" in capsys.readouterr().err


def test_a_pure_build_is_none(tmp_path: Path) -> None:
    """What was not compiled is no arm of its own; nor is what is not there."""
    environment = _installed(tmp_path / "venv", "one")
    next(environment.rglob("*.so")).unlink()
    assert compiled.python(environment, _source(tmp_path / "src", "one")) is None
    assert compiled.python(tmp_path / "nothing", tmp_path / "src") is None


@pytest.mark.parametrize("python", [None, "/somewhere/python"])
def test_both_builds_are_held_to_the_same_bars(monkeypatch: pytest.MonkeyPatch, python: str | None) -> None:
    """Each contestant that a must names is there, with the compiled build and without."""
    monkeypatch.setattr(compiled, "python", lambda: python)
    contest = embedded.BENCHMARK.build(True)
    labels = [must.label for must in contest.musts]
    names = {contestant.name for contestant in contest.contestants}
    assert ("compiled: door 64" in names) is (python is not None)
    assert ("compiled: at the door, 64 connections, times Redis" in labels) is (python is not None)
    assert "at the door, 64 connections, times Redis" in labels
