"""`fencehold journal`: a journal in one file and back, in the hands of an operator."""

import asyncio
import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fencehold.backup.frames import Head, Writer
from fencehold.cli.app import build, prepared
from fencehold.core.commands import Entry
from fencehold.engines.file import FileJournal
from fencehold.journal.codec import encode
from fencehold.runtime.calendar import now_us
from fencehold.types import Position
from tests.contract.engines.embedded import UnsyncedDisk
from tests.e2e.served import COMMAND, PATIENCE_S, Said, serving, until
from tests.e2e.terminal import Terminal


def call(*words: str, **variables: str) -> Said:
    """Call the command in this process."""
    given = ["journal", *words]
    clean = {"FENCEHOLD_ENGINE": None, "FENCEHOLD_ENGINE_PASSWORD": None, **variables}
    result = CliRunner().invoke(build(given), prepared(given), env=clean)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


def facts(*words: str) -> dict[str, object]:
    said = call("info", "--json", *words)
    assert said.code == 0, said.err
    found: dict[str, object] = json.loads(said.out)
    return found


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that has stopped; two names are held."""
    place = tmp_path_factory.mktemp("stopped")
    with serving(place, "--data", str(place / "data")) as server:
        for name in ("first", "second"):
            assert server.call("acquire", name, "--ttl", "10m").code == 0
    return place / "data"


@pytest.fixture
def data(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it, for one test alone."""
    return shutil.copytree(stopped, tmp_path / "data")


@pytest.fixture
def backup(data: Path, tmp_path: Path) -> Path:
    said = call("export", "--engine", str(data), str(tmp_path / "backup"))
    assert said.code == 0, said.err
    return tmp_path / "backup"


@pytest.mark.guarantee("G1")
def test_a_server_on_an_imported_journal_goes_on_where_the_other_stopped(data: Path, tmp_path: Path) -> None:
    """Holds are held, tokens release them, and the next fence is above all that could have been granted since."""
    with serving(tmp_path, "--data", str(data)) as server:
        token = server.call("acquire", "third", "--ttl", "10m").out.strip()
        fence = int(server.call("ls").out.splitlines()[-1].split("\t")[-1])
    assert call("export", "--engine", str(data), str(tmp_path / "backup")).code == 0
    before_us = now_us()
    assert call("import", str(tmp_path / "backup"), "--engine", f"file://{tmp_path}/deep/new").code == 0
    with serving(tmp_path, "--data", str(tmp_path / "deep" / "new")) as server:
        names = [line.split("\t")[0] for line in server.call("ls").out.splitlines()]
        assert names == ["first", "second", "third"]
        assert server.call("release", token).code == 0
        granted = json.loads(server.call("acquire", "third", "--json").out)["fence"]
    assert granted > before_us > fence


def test_what_is_in_a_backup_is_what_is_in_the_journal(data: Path, backup: Path) -> None:
    """Asked of either, for people or for scripts; the backup says where it is from."""
    of_file, of_journal = facts(str(backup)), facts("--engine", str(data))
    assert (of_file.pop("file"), of_journal.pop("url")) == (str(backup), str(data))
    assert str(of_file.pop("made_at")).endswith("Z")
    assert of_file.pop("made_by")
    assert of_file == of_journal
    assert (of_file["engine"], of_file["epoch"], of_file["fence"], of_file["hold_count"]) == ("file", 1, 2, 2)
    lines = call("info", str(backup)).out.splitlines()
    assert "fence\t2" in lines
    assert f"position\t{of_file['position']}" in lines


def test_exporting_says_what_it_wrote_and_for_whom(data: Path, tmp_path: Path) -> None:
    """A sentence, or JSON with the size; only its owner may read the file, for secrets are in it."""
    file = tmp_path / "backup"
    said = call("export", "--engine", str(data), str(file))
    assert said.out.startswith("exported position ")
    assert said.out.endswith(f"with fence 2, 2 sessions and 2 holds to {file}\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    said = call("export", "--engine", str(data), str(file), "--force", "--json")
    found = json.loads(said.out)
    assert (found["file"], found["bytes"], found["hold_count"]) == (str(file), file.stat().st_size, 2)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_importing_says_what_to_mind(backup: Path, tmp_path: Path) -> None:
    """From which fence on, and that clients of before may still trust what they hold."""
    said = call("import", str(backup), "--engine", str(tmp_path / "new"))
    assert said.code == 0
    assert f"2 sessions and 2 holds into {tmp_path}/new" in said.out
    fence = facts("--engine", str(tmp_path / "new"))["fence"]
    assert f"every fence from now on is above {fence}\n" in said.out
    assert "the longest in the backup is 10m00s" in said.err
    said = call("import", str(backup), "--engine", str(tmp_path / "newer"), "--json")
    found = json.loads(said.out)
    assert found["fence"] > int(str(fence))
    assert found["position"] == found["backup"]["position"] + 1
    assert found["backup"]["fence"] == 2


def test_a_running_server_owns_its_directory(tmp_path: Path) -> None:
    """It is not read beside its owner: 69, who that is, and what to do."""
    with serving(tmp_path, "--data", str(tmp_path / "data")) as server:
        for words in (["export", str(tmp_path / "backup")], ["info"]):
            said = call(*words, "--engine", str(tmp_path / "data"))
            assert said.code == 69
            assert f"is owned by process {server.process.pid}" in said.err
            assert "fencehold backup FILE" in said.err
    assert not (tmp_path / "backup").exists()


def test_a_file_that_is_there_stays_unless_forced(data: Path, tmp_path: Path) -> None:
    """Nobody loses the backup of yesterday by a habit."""
    file = tmp_path / "backup"
    file.write_text("precious")
    said = call("export", "--engine", str(data), str(file))
    assert said.code == 2
    assert "--force" in said.err
    assert file.read_text() == "precious"
    assert call("export", "--engine", str(data), str(file), "--force").code == 0
    assert facts(str(file))["fence"] == 2


def test_a_backup_goes_through_a_pipe(data: Path, tmp_path: Path) -> None:
    """From stdout to stdin, without a file between; what is said goes beside it."""
    exported = subprocess.Popen(
        [*COMMAND, "journal", "export", "-", "--engine", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    imported = subprocess.run(
        [*COMMAND, "journal", "import", "-", "--engine", str(tmp_path / "new")],
        stdin=exported.stdout,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    _, said = exported.communicate(timeout=PATIENCE_S)
    assert (exported.returncode, imported.returncode) == (0, 0), imported.stderr
    assert said.startswith(b"exported position ")
    assert facts("--engine", str(tmp_path / "new"))["hold_count"] == 2


@pytest.mark.parametrize("wreck", ["cut", "flipped", "another file", "empty"])
def test_a_damaged_backup_is_65_and_nothing_is_written(backup: Path, tmp_path: Path, wreck: str) -> None:
    """It is read whole before the journal is touched."""
    data = backup.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 4
    backup.write_bytes(
        {"cut": data[:-1], "flipped": bytes(flipped), "another file": b"text " * 99, "empty": b""}[wreck]
    )
    said = call("import", str(backup), "--engine", str(tmp_path / "not" / "made"))
    assert said.code == 65
    assert said.err.startswith(f"fencehold: {backup}")
    assert not (tmp_path / "not").exists()
    assert call("info", str(backup)).code == 65


def test_a_journal_that_is_not_empty_is_2_and_left_as_it_was(data: Path, backup: Path) -> None:
    """What to do is said."""
    before = facts("--engine", str(data))
    said = call("import", str(backup), "--engine", str(data))
    assert said.code == 2
    assert "not empty" in said.err
    assert facts("--engine", str(data)) == before


def test_an_operator_can_name_a_fence(data: Path, backup: Path, tmp_path: Path) -> None:
    """Above it all others are; where the clock cannot be believed it must be named."""
    high = now_us() + 10**12
    said = call("import", str(backup), "--engine", str(tmp_path / "new"), "--fence-above", str(high), "--json")
    assert json.loads(said.out)["fence"] == high
    future = tmp_path / "future"
    with future.open("wb") as sink:
        writer = Writer(sink)
        writer.begin(Head("file", 1, 0, 0, 0, 0, now_us() + 10**12))
        writer.end()
    said = call("import", str(future), "--engine", str(tmp_path / "never"))
    assert said.code == 2
    assert "--fence-above" in said.err
    assert call("import", str(future), "--engine", str(tmp_path / "newer"), "--fence-above", "500").code == 0
    assert call("import", str(backup), "--engine", str(tmp_path / "x"), "--fence-above", str(2**53)).code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["info"], "give the FILE of a backup, or the --engine"),
        (["info", "backup", "--engine", "data"], "not both"),
        (["info", "--engine", "nowhere"], "no such directory"),
        (["export", "--engine", "nowhere", "backup"], "no such directory"),
        (["export", "--engine", "consul://u:hunter2@h", "backup"], "no engine is known as consul://"),
        (["export", "--engine", "memory://", "backup"], "the journal is empty"),
        (["export", "--engine", "memory://", "-", "--json"], "name a file"),
        (["export", "--engine", "memory://", "no/such/place"], "cannot write no/such/place"),
        (["import", "nowhere", "--engine", "new"], "cannot read nowhere: No such file"),
        (["import", "nowhere", "--engine", "memory://"], "keeps nothing"),
    ],
)
def test_a_wrong_command_line_is_2(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence, nothing is made, and no password is repeated."""
    monkeypatch.chdir(tmp_path)
    ended = call(*words)
    assert ended.code == 2
    assert said in ended.err
    assert "hunter2" not in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_no_backup(data: Path) -> None:
    """Who gives the data directory in the place of a backup is told how to name it."""
    said = call("info", str(data))
    assert said.code == 2
    assert f"--engine {data}" in said.err


def test_the_engine_may_be_named_by_the_environment(data: Path, backup: Path) -> None:
    """Where a command line would show a password to all; a FILE is what is meant if both are there."""
    said = call("info", "--json", FENCEHOLD_ENGINE=str(data), FENCEHOLD_ENGINE_PASSWORD="of another engine")
    assert json.loads(said.out)["url"] == str(data)
    said = call("info", "--json", str(backup), FENCEHOLD_ENGINE="nowhere")
    assert json.loads(said.out)["file"] == str(backup)


def test_what_was_repaired_is_told(data: Path, tmp_path: Path) -> None:
    """Opening a directory repairs what a crash left, and never in silence."""
    (data / "epoch.tmp").write_bytes(b"half")
    said = call("export", "--engine", str(data), str(tmp_path / "backup"))
    assert said.code == 0
    assert f"repaired: {data}/epoch.tmp: removed" in said.err


def test_a_backup_is_not_thrown_at_a_terminal(data: Path, tmp_path: Path) -> None:
    """Bytes on a screen help nobody; a person sees a table, and how far it is."""
    with Terminal("journal", "export", "-", "--engine", str(data)) as screen:
        assert screen.code() == 2
        assert "a backup is binary" in screen.seen
    with Terminal("journal", "export", str(tmp_path / "backup"), "--engine", str(data)) as screen:
        assert screen.code() == 0
        assert "exported position" in screen.seen
    with Terminal("journal", "info", str(tmp_path / "backup")) as screen:
        assert screen.code() == 0
        assert "FACT" in screen.seen


def test_a_person_sees_how_far_it_is(tmp_path: Path) -> None:
    """A long journal has a bar while it is read, which is gone at the end; a script sees none."""

    async def fill() -> None:
        journal = FileJournal(tmp_path / "data", disk=UnsyncedDisk())
        await journal.open()
        epoch = await journal.lead()
        for position in range(1, 3_001):
            await journal.append(encode(Entry(1)), epoch=epoch, position=Position(position))
        await journal.close()

    asyncio.run(fill())
    with Terminal("journal", "info", "--engine", str(tmp_path / "data")) as screen:
        assert screen.code() == 0
        assert "reading" in screen.seen
        assert "/3000 entries" in screen.seen
        assert screen.seen.rstrip().endswith("0")
    said = call("info", "--engine", str(tmp_path / "data"))
    assert "entry_count\t3000" in said.out
    assert said.err == ""


def test_an_export_that_is_stopped_leaves_nothing(tmp_path: Path, data: Path) -> None:
    """A reader that goes away ends it; a backup that is not whole is nowhere."""
    process = subprocess.Popen(
        [*COMMAND, "journal", "export", "-", "--engine", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.close()
    until(lambda: process.poll() is not None)
    assert process.returncode == 128 + 13
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
