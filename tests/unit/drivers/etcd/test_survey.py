"""A survey of etcd's members: all of them are found, whoever is named, and each says how it stands."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.member import MemberStanding
from fencehold.drivers.etcd.survey import EtcdMemberStatus, survey
from fencehold.drivers.http2.codes import Code

_IDS = {"a:2379": 1, "b:2379": 2, "c:2379": 3}


class Members:
    """Three members, of which `a` leads; some may be away, some may not say who the others are."""

    def __init__(self, *, away: tuple[str, ...] = (), silent: bool = False) -> None:
        self.away = away
        self.is_silent = silent
        self.closed: list[str] = []
        self.listed = [messages.Member(ID=_IDS[at], clientURLs=[f"http://{at}"]) for at in _IDS]

    def connect(self, endpoint: str, context: ssl.SSLContext | None) -> Channel:
        return Line(self, endpoint)  # type: ignore[return-value]


class Line:
    """A channel to one of them."""

    def __init__(self, members: Members, endpoint: str) -> None:
        self._members = members
        self._endpoint = endpoint

    def unary_unary(self, path: str, *_: Any) -> Callable[..., Any]:
        async def call(request: Any, **_: Any) -> Any:
            if self._endpoint in self._members.away:
                raise CallFailed(Code.UNAVAILABLE, f"{self._endpoint}: Connection refused", is_sent=False)
            if path.endswith("MemberList"):
                if self._members.is_silent:
                    raise CallFailed(Code.PERMISSION_DENIED, "etcdserver: permission denied")
                return messages.MemberListResponse(members=self._members.listed)
            header = messages.ResponseHeader(member_id=_IDS[self._endpoint])
            return messages.StatusResponse(header=header, leader=1)

        return call

    def stream_stream(self, path: str, *_: Any) -> Callable[..., Any]:
        return lambda **_: None

    async def close(self) -> None:
        self._members.closed.append(self._endpoint)


def _seen(members: Members, url: str) -> dict[str, EtcdMemberStatus]:
    found = asyncio.run(survey(EtcdAddress.parse(url), 3.0, members.connect))
    return {one.endpoint: one for one in found}


def test_members_that_the_url_does_not_name_are_found() -> None:
    """One address is enough while that member is there; every connection is closed."""
    members = Members()
    seen = _seen(members, "etcd://b")
    assert {at: one.standing for at, one in seen.items()} == {
        "b:2379": MemberStanding.FOLLOWS,
        "a:2379": MemberStanding.LEADS,
        "c:2379": MemberStanding.FOLLOWS,
    }
    assert sorted(members.closed) == sorted(_IDS)


def test_one_that_is_away_is_counted_once_and_says_why() -> None:
    """Whether the URL names it or only the others do."""
    for url in ("etcd://a,b,c", "etcd://a"):
        seen = _seen(Members(away=("c:2379",)), url)
        assert len(seen) == 3
        assert seen["c:2379"].standing is MemberStanding.GONE
        assert "refused" in seen["c:2379"].trouble


def test_what_only_administrators_may_know_is_left_out() -> None:
    """Then those that are named are all there is."""
    assert list(_seen(Members(silent=True), "etcd://a,b")) == ["a:2379", "b:2379"]


def test_with_nobody_there_those_that_are_named_are_away() -> None:
    """Nothing is raised."""
    seen = _seen(Members(away=tuple(_IDS)), "etcd://a,b")
    assert {one.standing for one in seen.values()} == {MemberStanding.GONE}


def test_members_without_a_vote_or_a_start_are_told_apart() -> None:
    """A learner decides nothing; one that was added and never started is away."""
    members = Members()
    members.listed[2].isLearner = True
    members.listed.append(messages.Member(ID=0xFF))
    seen = _seen(members, "etcd://a,b,c")
    assert seen["c:2379"].is_learner
    assert not seen["a:2379"].is_learner
    assert seen["member ff"].standing is MemberStanding.GONE
