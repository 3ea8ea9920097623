"""Checks of several nodes: what each says of what a survey shows."""

from fencehold.cli.cluster_checks import cluster
from fencehold.cli.findings import Finding
from fencehold.cli.survey import Seen, Survey

A = Seen("a", "h:1", "leader", epoch=3, position=100, lag=0, version="1")
B = Seen("b", "h:2", "standby", position=99, lag=1, version="1")
C = Seen("c", "h:3", "standby", position=100, lag=0, version="1")


def found(*nodes: Seen) -> dict[str, Finding]:
    return {finding.check: finding for finding in cluster(Survey(list(nodes)))}


def levels(*nodes: Seen) -> dict[str, str]:
    return {name: finding.level for name, finding in found(*nodes).items()}


def test_a_healthy_cluster_is_ok() -> None:
    """Who leads, how many stand by, and how far they are."""
    assert levels(A, B, C) == {"cluster": "ok", "lag": "ok"}
    assert found(A, B, C)["cluster"].said == "a leads, 2 stand by"
    assert found(A, B, C)["lag"].said == "at most 1 entries, of b"


def test_no_leader_fails() -> None:
    """With where to look."""
    assert levels(B._replace(lag=None)) == {"cluster": "fail"}
    assert "logs" in found(B)["cluster"].advice


def test_nobody_to_take_over_is_warned_of() -> None:
    """A leader alone survives nothing."""
    assert levels(A) == {"cluster": "warn"}


def test_a_standby_far_behind_is_warned_of() -> None:
    """By its name."""
    far = found(A, B, C._replace(lag=5_000))["lag"]
    assert (far.level, far.said) == ("warn", "at most 5000 entries, of c")


def test_two_of_one_name_are_warned_of() -> None:
    """With where they are."""
    twice = found(A, B, C._replace(node="b"))["names"]
    assert (twice.level, twice.said) == ("warn", "2 nodes are called b: h:2, h:3")


def test_a_node_that_cannot_be_reached_is_warned_of() -> None:
    """It may be meant to be away; no name is no name twice."""
    away = [Seen("", f"h:{port}", "unreachable", note="refused", is_at_home=False) for port in (7, 8)]
    assert levels(A, B, *away) == {"cluster": "ok", "lag": "ok", "addresses": "warn"}
    assert found(A, B, away[0])["addresses"].said == "h:7 cannot be reached: refused"


def test_an_advertised_address_that_is_wrong_fails() -> None:
    """Clients are sent there."""
    wrong = found(A, B._replace(is_at_home=False, note="it answers elsewhere"))["addresses"]
    assert (wrong.level, wrong.said) == ("fail", "b, h:2: it answers elsewhere")
    assert "--advertise" in wrong.advice


def test_several_versions_are_warned_of() -> None:
    """As during an upgrade."""
    assert levels(A, B._replace(version="2"))["versions"] == "warn"


def test_what_a_node_complains_of_is_passed_on() -> None:
    """Whatever its role."""
    assert levels(A, B, C._replace(role="waiting", note="trying again: away"))["waiting"] == "warn"
    assert levels(A, B._replace(note="the leader does not hear from it"))["standby"] == "warn"
