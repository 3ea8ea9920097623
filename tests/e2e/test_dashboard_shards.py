"""The dashboard over several shards in a real browser: all of them on every page, also when a leader dies."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import fencehold
from rig.etcd import EtcdCluster
from rig.nodes import NodeGroup
from tests.e2e.browser import PATIENCE_MS, Visitor, browsing
from tests.e2e.grpc_client import door
from tests.e2e.served import Served, serving, until

expect.set_options(timeout=PATIENCE_MS)
NAMES = ("a", "b", "c", "d")
"""One of each of four shards."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("shards"), "--shards", "4") as served:
        yield served


@pytest.fixture(scope="module")
def port(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with door(tmp_path_factory.mktemp("door"), "http", server.url) as chosen:
        yield chosen


def test_every_page_is_of_all_shards(  # noqa: PLR0915 - a visit to every page
    server: Served, port: int, browser: Browser
) -> None:
    """Names, clients that are one though they have four sessions, waits, events as they happen, and breaking."""
    with ExitStack() as stack:
        ann = stack.enter_context(fencehold.connect(server.url, name="ann"))
        bob = stack.enter_context(fencehold.connect(server.url, name="bob"))
        holds = [ann.lock(name).acquire() for name in NAMES]
        pool = stack.enter_context(ThreadPoolExecutor(4))
        waits = [pool.submit(bob.lock(name, timeout=120).acquire) for name in NAMES]
        until(lambda: all(ann.explain(name).waiter_count for name in NAMES))
        visitor = stack.enter_context(Visitor(browser, port, color_scheme="light"))
        page = visitor.go("")
        expect(page.locator(".rows.shards li")).to_have_count(4)
        expect(page.locator(".tile").filter(has_text="names held")).to_contain_text("4")
        visitor.check_accessible()
        visitor.picture("shards-overview")
        page = visitor.go("names")
        expect(page.locator(".table-body .name")).to_have_count(4)
        expect(page.locator(".table-body .party-name")).to_have_text(["ann"] * 4)
        visitor.check_accessible()
        visitor.picture("shards-names")
        page = visitor.go("sessions")
        expect(page.locator(".page-head .count")).to_contain_text("2 clients")
        expect(page.get_by_text("0, 1, 2, 3").first).to_be_visible()
        visitor.picture("shards-sessions")
        page.locator(".table-body .party-name").filter(has_text="ann").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("ann")
        for shard in range(4):
            expect(page.locator("main").get_by_text(f"shard {shard}", exact=True)).to_be_visible()
        visitor.check_accessible()
        visitor.picture("shards-session")
        page = visitor.go("waits")
        expect(page.locator(".drawing .arrow")).to_have_count(4)
        # Ann is one, though she holds in four shards; Bob waits in four threads.
        expect(page.locator(".drawing .box.holds")).to_have_count(1)
        visitor.check_accessible()
        visitor.picture("shards-waits")
        page = visitor.go("events")
        expect(page.get_by_text("as they happen", exact=True)).to_be_visible()
        for hold in holds:
            hold.extend(60)
        for name in NAMES:
            extended = page.locator(".event", has_text="extended").filter(
                has=page.locator(f".name[title='{name}']")
            )
            expect(extended.first).to_be_visible()
        visitor.picture("shards-events")
        page = visitor.go("nodes")
        expect(page.get_by_text("leads 4 shards: 0, 1, 2, 3")).to_be_visible()
        visitor.check_accessible()
        visitor.picture("shards-nodes")
        for name, hold in zip(NAMES, holds, strict=True):
            page = visitor.go(f"name?name={name}")
            page.get_by_role("button", name="Break …").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_role("checkbox").check()
            dialog.get_by_role("button", name=f"Break fence #{hold.fence}").click()
            expect(page.locator(".holders")).to_contain_text("bob")
        visitor.picture("shards-name")
        assert not visitor.wrongs
        for each in waits:
            got = each.result()
            assert got is not None
            got.release()


def test_a_shard_whose_events_are_missing_is_named(port: int, browser: Browser) -> None:
    """The page of events says which shards do not answer, until they are back."""
    told = (("shard_away", 2), ("shard_away", 1), ("shard_back", 2))
    stream = "".join(f'event: {kind}\ndata: {{"kind": "{kind}", "shard": {shard}}}\n\n' for kind, shard in told)
    with Visitor(browser, port) as visitor:
        visitor.page.route(
            "**/dashboard/api/v1/events?*",
            lambda route: route.fulfill(content_type="text/event-stream", body=f"retry: 600000\n\n{stream}"),
        )
        page = visitor.go("events")
        expect(page.locator(".banner.warn")).to_contain_text("No events from shard 1: it does not answer")
        visitor.check_accessible()


def test_the_leader_of_some_shards_dies_while_it_is_open(browser: Browser, tmp_path: Path) -> None:
    """The others go on, and when somebody else leads those, they are live again: nothing has to be loaded anew."""
    etcd = EtcdCluster(tmp_path / "etcd", 1)
    etcd.start()
    with ExitStack() as stack:
        stack.callback(etcd.stop)
        nodes = stack.enter_context(NodeGroup(etcd.url("shown"), tmp_path / "nodes", 2, options=("--shards", "4")))
        client = stack.enter_context(fencehold.connect(nodes.url, name="ann", ttl=120, connect_timeout=60))
        port = stack.enter_context(door(tmp_path, "http", nodes.url))
        visitor = stack.enter_context(Visitor(browser, port))
        page = visitor.go("nodes")
        for name in ("a", "b"):
            row = page.locator(".rows.nodes li").filter(has=page.locator("strong", has_text=name))
            expect(row).to_contain_text("leads 2 shards")
        holds = [client.lock(name).acquire() for name in NAMES]
        page = visitor.go("names")
        expect(page.locator(".table-body .name")).to_have_count(4)
        nodes.nodes[0].kill()
        for hold in holds:
            hold.release()
        expect(page.get_by_text("Nothing is held")).to_be_visible()
        again = [client.lock(f"{name}2", timeout=60).acquire() for name in NAMES]
        expect(page.locator(".table-body .name")).to_have_count(4)
        expect(page.locator(".live.is-live")).to_be_visible()
        expect(page.locator(".banner.warn")).to_have_count(0)
        page.keyboard.press("6")
        expect(page.get_by_text("leads 4 shards: 0, 1, 2, 3")).to_be_visible()
        assert all(again)
        assert not visitor.wrongs
