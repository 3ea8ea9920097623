"""The reader of a picture: how often it asks for what costs the leader something."""

from typing import Any, cast

from fencehold.dashboard.reader import Reader, pause_after
from fencehold.gateway.credentials import ANONYMOUS
from fencehold.gateway.questions import Questions
from fencehold.types import CORRECTNESS


class Asked(Reader):
    """Counts lists of names, each of which is answered that there are none."""

    lists = 0

    async def ask(self, *words: Any, shard: int | None = None) -> Any:
        self.lists += words[0] == "LOCK.LIST"
        return b"", []


async def test_when_a_flood_begins_the_list_of_just_now_is_not_read_again() -> None:
    """Only when it is some seconds old: how many names there are by then is known by then, too."""
    now_s = 1_000.0
    reader = Asked(cast(Questions, None), ANONYMOUS, CORRECTNESS, time_of_day=lambda: now_s)
    await reader._list_names()
    assert reader.lists == 1
    reader.picture.is_sampled = True
    now_s += 2
    await reader._list_names()
    assert reader.lists == 1
    now_s += 4
    reader.picture.facts = {"names_held": "1000000"}
    await reader._list_names()
    assert reader.lists == 1
    reader.picture.facts = {"names_held": "100"}
    await reader._list_names()
    assert reader.lists == 2


def test_who_is_slow_to_answer_is_left_alone_for_as_long() -> None:
    """Within bounds: a leader that was away for seconds is asked again soon."""
    assert pause_after(0.001, 0.004) == 0.004
    assert pause_after(0.03, 0.004) == 0.03
    assert pause_after(0.03, 0.05) == 0.05
    assert pause_after(5.0, 0.004) == 0.1
