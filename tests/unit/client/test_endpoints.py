"""Where to connect: what a URL says, and in which order nodes are tried."""

import pytest

from fencehold.client.endpoints import PAUSE_MAX_S, SILENT_S, Rotation
from fencehold.drivers.address import Endpoint, service_address
from fencehold.errors import UsageError

NOW = 1_000.0


def test_a_url_names_nodes_and_who_asks() -> None:
    """Hosts are separated by commas; the port is 7420 unless given; words are unquoted."""
    address = service_address("fencehold://me:s%40crt@h1:1,h2,[::1],[::2]:9")
    assert address.endpoints == (("h1", 1), ("h2", 7420), ("::1", 7420), ("::2", 9))
    assert (address.user, address.secret, address.tls) == ("me", "s@crt", False)
    assert service_address("fenceholds://h").tls


@pytest.mark.parametrize("url", ["redis://h", "h:1", "fencehold://", "fencehold://h:port", "fencehold://h:70000"])
def test_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    """A wrong scheme, no host, or no port number is a usage error."""
    with pytest.raises(UsageError):
        service_address(url)


def test_a_secret_that_is_not_quoted_is_not_shown() -> None:
    """What stands before a / in it would be taken for a host and a port."""
    with pytest.raises(UsageError, match="%2F") as refused:
        service_address("fencehold://me:hush/hush@h:1")
    assert "hush" not in str(refused.value)
    assert service_address("fencehold://me:hush%2Fhush@h:1/").secret == "hush/hush"


def test_a_leader_that_was_not_given_is_told_of_until_one_serves() -> None:
    """Its address may be one that cannot be reached from here, which is what there is to be corrected."""
    rotation = Rotation((Endpoint("a", 1),), lambda: 0.0)
    rotation.take(NOW)
    rotation.on_trouble("it stands by")
    rotation.on_leader("c:3")
    assert rotation.take(NOW) == ("c", 3)
    rotation.on_trouble("No route to host")
    assert rotation.trouble() == "No route to host"
    assert rotation.troubles() == "it stands by; c:3: No route to host"
    rotation.take(NOW)
    assert rotation.trouble() == "it stands by"
    rotation.on_success()
    assert "No route" not in rotation.troubles()


def test_the_node_that_served_is_tried_first() -> None:
    """After a success the same node is the next to be tried; pauses begin anew and never exceed a second."""
    rotation = Rotation((Endpoint("a", 1), Endpoint("b", 2)), lambda: 1.0)
    assert rotation.take(NOW).host == "a"
    assert rotation.pause() == 0
    assert rotation.take(NOW).host == "b"
    rotation.on_success()
    assert rotation.pause() == 0
    assert rotation.take(NOW).host == "b"
    assert max(rotation.pause() for _ in range(60)) == PAUSE_MAX_S


def test_a_hint_is_believed_once_and_never_in_a_tight_circle() -> None:
    """A node that is said to lead is tried at once; whom that one names, after a pause. No address is no hint."""
    rotation = Rotation((Endpoint("a", 1), Endpoint("b", 2)), lambda: 0.0)
    rotation.on_leader("c:3")
    assert rotation.pause() == 0
    assert rotation.take(NOW) == ("c", 3)
    rotation.on_leader("b:2")
    assert rotation.pause() > 0
    assert rotation.take(NOW) == ("b", 2)
    rotation.on_leader("not:an:address:at-all")
    rotation.on_leader("")
    assert rotation.take(NOW) == ("a", 1)


def test_a_hint_to_a_node_that_was_just_silent_is_followed() -> None:
    """Who names it has heard of it since: it may only have waited for its journal."""
    rotation = Rotation((Endpoint("a", 1), Endpoint("b", 2), Endpoint("c", 3)), lambda: 1.0)
    rotation.take(NOW)
    rotation.on_silent(NOW)
    assert rotation.take(NOW).host == "b"
    rotation.on_leader("a:1")
    assert rotation.pause() == 0
    assert rotation.take(NOW).host == "a"


@pytest.mark.parametrize("answer_s", [0.0, 0.3, 1.2])
def test_a_node_that_was_silent_is_passed_over_for_a_second(answer_s: float) -> None:
    """Asking it costs a whole turn, and another node takes over meanwhile; but however slowly others answer, it is
    asked again after a second, for it may lead."""
    rotation = Rotation((Endpoint("a", 1), Endpoint("b", 2), Endpoint("c", 3)), lambda: 1.0)
    rotation.take(NOW)
    rotation.on_success()
    rotation.on_silent(NOW)
    tried: list[str] = []
    now = NOW + rotation.pause()
    while not tried or tried[-1] != "a":
        tried.append(rotation.take(now).host)
        now += answer_s + rotation.pause()
    assert tried[:2] == ["b", "c"]
    assert NOW + SILENT_S < now < NOW + SILENT_S + 2 * PAUSE_MAX_S + 3 * answer_s


def test_the_only_node_is_never_passed_over() -> None:
    """Silent or not, there is no other."""
    rotation = Rotation((Endpoint("a", 1),), lambda: 1.0)
    rotation.take(NOW)
    rotation.on_silent(NOW)
    assert rotation.take(NOW).host == "a"


def test_after_a_long_outage_a_hint_is_followed_at_once() -> None:
    """Pauses have grown to a second by then; whoever is told who leads has waited for one of them already."""
    rotation = Rotation((Endpoint("a", 1), Endpoint("b", 2)), lambda: 1.0)
    while rotation.pause() < PAUSE_MAX_S:
        rotation.take(NOW)
    assert rotation.take(NOW) == ("b", 2)
    rotation.on_leader("a:1")
    assert rotation.pause() == 0
    assert rotation.take(NOW) == ("a", 1)


def test_a_node_that_is_silent_is_not_the_next_to_be_tried() -> None:
    """A node that was stopped takes connections and answers nothing: others come first, hinted at or not."""
    rotation = Rotation((Endpoint("a", 1), Endpoint("b", 2), Endpoint("c", 3)), lambda: 1.0)
    assert rotation.take(NOW).host == "a"
    rotation.on_success()
    rotation.on_silent(NOW)
    assert rotation.take(NOW).host == "b"
    rotation.on_leader("c:3")
    assert rotation.take(NOW).host == "c"
    rotation.on_success()
    rotation.on_silent(NOW)
    assert rotation.take(NOW).host == "a"
