"""`fencehold history`, over HTTP and gRPC, too: a real server with all its processes, asked as a user asks."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import grpc
import httpx
import pytest

import fencehold
from fencehold.wire import messages as m
from fencehold.wire.services import WATCH, Stub
from tests.e2e.grpc_client import door
from tests.e2e.served import Served, serving


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a past: a hold that was broken, one that was released too late, one that lasts."""
    place = tmp_path_factory.mktemp("history")
    with serving(place, "--data", str(place / "data"), "--json") as served:
        with fencehold.connect(served.url, name="worker") as client:
            hold = client.lock("job:7").acquire()
            client.break_hold("job:7")
            assert hold.lost.wait(60)
            for _ in range(2):
                with client.lock("job:7"):
                    pass
        yield served


def test_the_past_is_told_for_people_and_for_programs(kept: Served) -> None:
    """A line for each hold, and what deserves a look; with --json the same as over HTTP."""
    code, out, _ = kept.call("history", "job:7")
    assert code == 0
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[0] for line in lines] == ["hold", "hold", "hold", "remark"]
    assert lines[2][-1].startswith("broken by worker")
    assert lines[3][1] == "break"
    code, out, _ = kept.call("history", "job:7", "--since", "1h", "--rows", "2", "--json")
    found = json.loads(out)
    assert [hold["ended"] for hold in found["holds"]] == ["released", "released"]
    assert found["holds"][0]["client"] == "worker"


def test_at_a_time_when_nobody_held_it_the_answer_is_no(kept: Served) -> None:
    """Exit code 1, and since when anything is known; a wrong time is a wrong command line."""
    for at in ("1h", "2020-01-01T00:00", "2020-01-01T00:00:00Z"):
        code, _, err = kept.call("history", "job:7", "--at", at)
        assert code == 1
        assert "as far as is known (since " in err
    code, _, err = kept.call("history", "job:7", "--at", "yesterday")
    assert code == 2
    code, out, _ = kept.call("history", "job:7", "--at", datetime.now(UTC).isoformat(), "--json")
    assert (code, json.loads(out)["holds"]) == (1, [])


def test_over_http_it_has_the_agreed_shape(kept: Served, tmp_path: Path) -> None:
    """And the page of metrics of that node counts what happened, by template."""
    with door(tmp_path, "http", kept.url) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
        found = http.get("/v1/history/job:7", params={"since": "2020-01-01T00:00:00Z", "limit": 2}).json()
        assert set(found) == {"name", "holds", "waits", "remarks", "known_since"}
        assert len(found["holds"]) == 2
        assert {"fence", "mode", "session", "client", "host", "pid", "principal", "owner"} <= set(
            found["holds"][0]
        )
        assert {"since", "until", "held_ms", "waited_ms", "ended", "by", "shard"} <= set(found["holds"][0])
        wrong = http.get("/v1/history/job:7", params={"at": "noon"})
        assert (wrong.status_code, wrong.json()["reason"]) == (400, "USAGE")
        figures = http.get("/metrics").text
        labels = 'listener="resp",op="acquire",outcome="granted",template="job:*",tier="correctness"'
        assert f"fencehold_operations_total{{{labels}}} 3.0" in figures
        assert 'fencehold_hold_losses_total{reason="broken",template="job:*",tier="correctness"} 1.0' in figures
        assert 'fencehold_names_held{shard="0",tier="correctness"} 0.0' in figures
        assert 'fencehold_leader{shard="0"} 1.0' in figures


def test_over_grpc_it_is_told_in_messages(kept: Served, tmp_path: Path) -> None:
    """The same holds as over HTTP; an instant and a span at once are refused, as everywhere."""
    with (
        door(tmp_path, "grpc", kept.url) as port,
        door(tmp_path, "http", kept.url) as http_port,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        ask = Stub(channel, WATCH).History
        told = ask(m.HistoryRequest(name="job:7", since_unix_ms=0, limit=1_000))
        same = httpx.get(f"http://127.0.0.1:{http_port}/v1/history/job:7").json()
        assert [(one.fence, one.ended, one.by, one.position) for one in told.holds] == [
            (one["fence"], one["ended"], one["by"] or "", one["position"]) for one in same["holds"]
        ]
        first = told.holds[-1]
        assert (first.ended, first.mode, first.party.client) == ("broken", m.MODE_EXCLUSIVE, "worker")
        assert first.until_unix_ms >= first.since_unix_ms >= told.known_since_unix_ms > 0
        assert [remark.kind for remark in told.remarks] == ["break"]
        instant = first.since_unix_ms
        assert first.fence in [one.fence for one in ask(m.HistoryRequest(name="job:7", at_unix_ms=instant)).holds]
        assert not ask(m.HistoryRequest(name="job:7", until_unix_ms=1)).holds
        with pytest.raises(grpc.RpcError) as refused:
            ask(m.HistoryRequest(name="job:7", at_unix_ms=1, since_unix_ms=1))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
