"""Places of several shards in one text."""

import pytest

from fencehold.errors import UsageError
from fencehold.locks.places import places_text, read_places
from fencehold.locks.views import WHOLE


def test_a_place_of_one_shard_is_written_as_ever() -> None:
    """Position and index, or the position alone after a gap."""
    assert places_text({0: (17, 0)}, 1) == "17-0"
    assert places_text({0: (17, WHOLE)}, 1) == "17"
    assert read_places("17-3", 1) == {0: (17, 3)}
    assert read_places("17", 1) == {0: (17, WHOLE)}


def test_places_of_several_shards_are_read_back() -> None:
    """In the order of the shards; one of which nothing is known is empty, and begins from now on."""
    places = {0: (17, 0), 1: (9, 2), 3: (40, WHOLE)}
    assert places_text(places, 4) == "17-0,9-2,,40"
    assert read_places("17-0,9-2,,40", 4) == places
    assert read_places(",,,", 4) == {}


def test_a_watch_that_began_before_all_that_happened_goes_on_there() -> None:
    """Position 0 is a place like any other, as it is where a position alone is said."""
    assert read_places(places_text({0: (0, WHOLE), 1: (9, WHOLE)}, 2), 2) == {0: (0, WHOLE), 1: (9, WHOLE)}
    assert read_places("0", 1) == {0: (0, WHOLE)}


@pytest.mark.parametrize("said", ["17-0", "1,2,3", "x,1", "1-,2", "-1,2", "1-x,2", "²,2", "9" * 21 + ",1"])
def test_what_is_no_such_text_is_refused(said: str) -> None:
    """Also the place of a service with another number of shards."""
    with pytest.raises(UsageError):
        read_places(said, 2)
