"""The summary of what shadows report."""

from pathlib import Path

import msgspec
import pytest

from fencehold.compat.shadow import NAMES_MAX, TOP, Kind, Report, Side, Tally, main

US = Side("us", "here", 1, "MainThread", 1.0, 5.0)


def report(kind: Kind, name: str, seconds: float = 1.0) -> Report:
    return Report(kind, name, 2.0, seconds, US)


def written(folder: Path, *reports: Report) -> str:
    file = folder / "reports.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in reports))
    return str(file)


def test_the_worst_names_come_first() -> None:
    """By overlaps, then by all findings; the length of an overlap is known when it is over."""
    tally = Tally()
    for each in (report("late_release", "a"), report("expired", "a"), report("overlap", "b", 0.1)):
        tally.add(each)
    tally.add(report("overlap_over", "b", 7.5))
    summary = tally.summary()
    assert [name.name for name in summary.names] == ["b", "a"]
    assert (summary.worst_overlap_s, summary.names[0].worst_overlap_s, summary.names[0].findings) == (7.5, 7.5, 1)
    assert summary.findings == {"overlap": 1, "retaken": 0, "expired": 1, "late_release": 1, "lost": 0}


def test_a_summary_is_bounded() -> None:
    """However many names there are."""
    tally = Tally()
    for number in range(NAMES_MAX + 5):
        tally.add(report("expired", f"name-{number}"))
    summary = tally.summary()
    assert (len(summary.names), summary.names_uncounted, summary.findings["expired"]) == (TOP, 5, NAMES_MAX + 5)


def test_a_file_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code says whether there was an overlap."""
    assert main([written(tmp_path, report("expired", "orders"))]) == 0
    assert main([written(tmp_path, report("overlap", "orders", 0.25))]) == 1
    said = capsys.readouterr().out
    assert "orders" in said
    assert "0.250s" in said


def test_what_is_no_report_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line that was cut off, by a disk that was full, hides no other."""
    file = Path(written(tmp_path, report("expired", "orders")))
    file.write_bytes(b'{"kind":\n\n' + file.read_bytes())
    assert main([str(file)]) == 0
    assert capsys.readouterr().err == "1 lines are not reports of a shadow\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["a", "b"], ["/no/such/file"]])
def test_a_call_that_makes_no_sense_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It says why."""
    assert main(arguments) == 2
    assert capsys.readouterr().err


def test_a_report_reads_as_a_sentence() -> None:
    """In a log, it says what, for how long, who and who else."""
    other = Side("them", "there", 2, "worker", 0.5, None, 7)
    said = str(Report("overlap", "orders", 2.0, 0.25, US, other, "why"))
    assert said == (
        "overlap of 'orders', 0.250 s: us on here (pid 1), MainThread; "
        "the other: them on there (pid 2), worker (why)"
    )
