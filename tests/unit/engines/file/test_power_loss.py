"""Power lost at any moment, again and again: what was acknowledged is there, what is found stays."""

import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from fencehold.engines.file.directory import Directory
from fencehold.engines.file.log import Log
from fencehold.engines.file.snapshots import Draft, trim
from fencehold.types import Epoch, Position
from tests.depth import deep
from tests.unit.engines.file.power import PowerDisk, PowerLost
from tests.unit.engines.file.wreck import append_all, open_and_read, read_after

SEEDS = deep(60, 200)
LOSSES_PER_SEED = 4


class Life:
    """A journal through several power losses, and what its users were told."""

    def __init__(self, seed: int, path: Path) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.told: list[bytes] = []
        self.asked: bytes | None = None
        self.epoch = Epoch(0)
        self.saved = self.saving = Position(0)

    def lead_until_the_power_goes(self, number: int) -> None:
        """Open, check what is found, work; be killed now and then, and start again; until the power goes."""
        root = self.path / str(number)
        disk = PowerDisk(root, self.rng.randrange(1, 120))
        self.lead_once(root, disk)
        while self.rng.random() < 0.4:
            disk.kill(self.rng.randrange(1, self.rng.choice([30, 60])))
            self.lead_once(root, disk)
        disk.lose(self.rng, self.path / str(number + 1))

    def lead_once(self, root: Path, disk: PowerDisk) -> None:
        directory = Directory(str(root), disk)
        log = Log(directory, segment_bytes_max=2_000, allocate_bytes=700)
        with contextlib.suppress(PowerLost):
            self.check(root, log)
            self.work(directory, log)

    def check(self, root: Path, log: Log) -> None:
        opened = log.open()
        covered = opened.snapshot.position if opened.snapshot else Position(0)
        assert covered in (self.saved, self.saving)
        assert opened.snapshot is None or opened.snapshot.data == self.state(covered)
        assert opened.epoch >= self.epoch
        found = [record.entry for record in read_after(root, opened)]
        allowed = [self.told[covered:]]
        if self.asked is not None:
            allowed.append([*self.told[covered:], self.asked])
        assert found in allowed
        # Whatever was found was told to whoever opened: it may not vanish later.
        self.told[covered:] = found
        self.asked, self.saved, self.epoch = None, covered, opened.epoch
        self.saving = covered

    def work(self, directory: Directory, log: Log) -> None:
        self.epoch = log.lead()
        while True:
            self.asked = self.rng.randbytes(self.rng.choice([1, 30, 300, 1_500])) + bytes(self.rng.randrange(9))
            log.append(self.asked, self.epoch, Position(len(self.told) + 1))
            self.told.append(self.asked)
            self.asked = None
            if self.rng.random() < 0.1:
                self.save(directory)

    def save(self, directory: Directory) -> None:
        self.saving = Position(self.rng.randrange(self.saved, len(self.told) + 1))
        draft = Draft(directory, self.saving)
        draft.begin()
        draft.add(self.state(self.saving))
        draft.publish()
        self.saved = self.saving
        trim(directory)

    def state(self, position: Position) -> bytes:
        return b"|".join(self.told[:position])


@pytest.mark.slow
@pytest.mark.guarantee("G3")
def test_no_acknowledged_entry_is_lost_with_the_power(tmp_path: Path) -> None:
    """Over hundreds of power losses and more kills, any part of what was not synced kept, no promise is broken."""
    acknowledged = 0
    for seed in range(SEEDS):
        path = tmp_path / str(seed)
        (path / "0").mkdir(parents=True)
        life = Life(seed, path)
        for number in range(LOSSES_PER_SEED):
            life.lead_until_the_power_goes(number)
        acknowledged += len(life.told)
        shutil.rmtree(path)
    assert acknowledged > 5 * SEEDS


class Worst(random.Random):
    """Keeps nothing that was not synced."""

    def random(self) -> float:
        return 0.99

    def choice(self, seq: Any) -> Any:
        return "nothing" if "nothing" in seq else seq[0]


def test_what_a_killed_process_left_is_durable_once_it_was_opened(tmp_path: Path) -> None:
    """Killed at any call of a change of segment, then opened and appended to: the power takes nothing away."""
    for calls in range(1, 30):
        root = tmp_path / f"{calls}"
        root.mkdir()
        disk = PowerDisk(root, calls=10_000)
        log = Log(Directory(str(root), disk), segment_bytes_max=500, allocate_bytes=300)
        log.open()
        log.lead()
        append_all(log, [b"one" * 100])
        disk.calls_left = calls
        with contextlib.suppress(PowerLost):
            append_all(log, [b"two" * 100])
        disk.kill(calls=10_000)
        log = Log(Directory(str(root), disk), segment_bytes_max=500, allocate_bytes=300)
        found = read_after(root, log.open())
        found += append_all(log, [b"three"])
        disk.lose(Worst(), tmp_path / f"{calls} after")
        assert open_and_read(tmp_path / f"{calls} after")[1] == found
