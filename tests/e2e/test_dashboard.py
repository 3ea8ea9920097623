"""The dashboard in a real browser, on a real server: every page and every action, as people use them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import trustme
from playwright.sync_api import Browser, Page, expect

import fencehold
from fencehold.security.tokens import Line, add, digest_of, new_token
from rig.etcd import EtcdCluster
from rig.nodes import NodeGroup
from tests.e2e.browser import PATIENCE_MS, PHONE, Visitor, browsing
from tests.e2e.grpc_client import door
from tests.e2e.served import Served, serving, until

expect.set_options(timeout=PATIENCE_MS)
NASTY = "<script>document.title='taken'</script>\r\n<img src=x onerror=alert(1)>"
NAME = "name?name=jobs%3Anightly"
PAGES = {
    "light": ("", "names", "sessions", "waits", "events", "nodes", NAME),
    "dark": ("", "waits", NAME),
    "phone": ("", "names", NAME),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("dashboard"), "--memory") as served:
        yield served


@pytest.fixture(scope="module")
def port(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with door(tmp_path_factory.mktemp("door"), "http", server.url) as chosen:
        yield chosen


@pytest.fixture
def client(server: Served) -> Iterator[fencehold.Client]:
    with fencehold.connect(server.url, name="ann") as connected:
        yield connected


@pytest.fixture
def queued(server: Served, client: fencehold.Client) -> Iterator[fencehold.Hold]:
    """Ann holds a name, and Bob waits for it."""
    hold = client.lock("jobs:nightly", meta={"traceparent": f"00-{'a1' * 16}-{'b2' * 8}-01"}).acquire()
    with fencehold.connect(server.url, name="bob") as bob, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bob.lock("jobs:nightly", timeout=60).acquire)
        until(lambda: client.explain("jobs:nightly").waiter_count)
        yield hold
        if not hold.lost.is_set():
            hold.release()
        got = waiting.result()
        assert got is not None
        got.release()


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_page_is_shown_and_accessible(
    port: int, browser: Browser, queued: fencehold.Hold, look: str
) -> None:
    """In light, in dark and on a phone, axe finds nothing wrong, and the browser's console is empty."""
    options: dict[str, Any] = PHONE if look == "phone" else {"color_scheme": look}
    with Visitor(browser, port, **options) as visitor:
        for path in PAGES[look]:
            page = visitor.go(path)
            page.get_by_role("heading", level=1).wait_for()
            if path in {"", "names", "waits", NAME}:
                expect(page.locator("main").get_by_text("bob" if path == "waits" else "ann").first).to_be_visible()
            visitor.check_accessible()
            visitor.picture(f"{look}-{path.partition('?')[0] or 'overview'}")
            is_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert not is_wide, f"{path} is wider than the screen"
        assert not visitor.wrongs


def test_names_are_found_as_one_types_filtered_and_sorted(
    port: int, browser: Browser, client: fencehold.Client
) -> None:
    """And what is shown can be shared: the address says all of it."""
    holds = [client.lock(f"find:{number:03}").acquire() for number in range(120)]
    with Visitor(browser, port) as visitor:
        page = visitor.go("names?prefix=find%3A")
        expect(page.locator(".page-head .count")).to_have_text("120 found")
        page.keyboard.press("/")
        page.keyboard.type("11")
        expect(page.locator(".page-head .count")).to_have_text("11 found")
        assert "q=11" in page.url
        page.get_by_label("Search names").fill("find:*9")
        expect(page.locator(".page-head .count")).to_have_text("12 found")
        page.get_by_role("button", name="Name").click()
        expect(page.locator(".table-body .name").first).to_have_text("find:009")
        page.get_by_role("button", name="Name").click()
        expect(page.locator(".table-body .name").first).to_have_text("find:119")
        page.get_by_role("button", name="awaited").click()
        expect(page.get_by_text("No name is found")).to_be_visible()
        page.get_by_role("button", name="Show all names").click()
        page.get_by_label("Client").fill("nobody-here")
        expect(page.get_by_text("No name is found")).to_be_visible()
        page.get_by_label("Client").fill("ann")
        page.wait_for_url("**client=ann**")
        page.goto(page.url)
        expect(page.locator(".page-head .count")).to_have_text("120 found")
        # Rows come as one scrolls.
        page.locator(".table-body").evaluate("box => box.scrollTop = box.scrollHeight")
        expect(page.locator(".table-body .name").last).to_have_text("find:000")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("k")
        expect(page.locator(".table-body .is-chosen .name")).to_contain_text("find:")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("find:")
        assert not visitor.wrongs
    for hold in holds:
        hold.release()


def test_a_name_is_live_and_its_hold_is_broken_after_the_consequences_were_shown(
    port: int, browser: Browser, queued: fencehold.Hold
) -> None:
    """Who holds, who waits, explained; then the next one holds it, and the page knows."""
    with Visitor(browser, port) as visitor:
        page = visitor.go("name?name=jobs%3Anightly")
        expect(page.locator(".sentence")).to_contain_text("is held by ann")
        expect(page.locator(".queue")).to_contain_text("bob")
        expect(page.get_by_text("a1" * 16)).to_be_visible()
        page.get_by_role("button", name="Break …").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("is granted at once, with a greater fence")
        visitor.check_accessible()
        visitor.picture("light-break")
        sure = dialog.get_by_role("button", name=f"Break fence #{queued.fence}")
        expect(sure).to_be_disabled()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        page.get_by_role("button", name="Break …").click()
        dialog.get_by_role("checkbox").check()
        sure.click()
        expect(page.get_by_text(f"The hold with fence {queued.fence} was broken.")).to_be_visible()
        expect(page.locator(".holders")).to_contain_text("bob")
        expect(page.locator(".timeline")).to_be_visible()
        expect(page.locator(".events .badge.bad").first).to_have_text("broken")
        page.get_by_role("button", name="The change before").click()
        page.wait_for_url("**at=**")
        expect(page.locator(".moment")).to_contain_text("At ")
        assert not visitor.wrongs
    until(queued.lost.is_set)


def test_names_full_of_markup_are_shown_as_text(port: int, browser: Browser, client: fencehold.Client) -> None:
    """Nothing of a name is run or loaded; it is found, opened and broken like any other."""
    hold = client.lock(NASTY, meta={"note": "<b>bold</b>"}).acquire()
    with Visitor(browser, port) as visitor:
        page = visitor.go("names?q=%3Cscript%3E")
        page.locator(".table-body .name").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(NASTY.replace("\r\n", r"\r\n"))
        expect(page.get_by_text("<b>bold</b>")).to_be_visible()
        assert page.title() != "taken"
        assert page.locator("main img, main script, main b:text('bold')").count() == 0
        # Asked for by this name, and not "there is no such page".
        expect(page.get_by_text("this server keeps no history")).to_be_visible()
        visitor.picture("light-markup")
        page.get_by_role("button", name="Break …").click()
        page.get_by_role("dialog").get_by_role("checkbox").check()
        page.get_by_role("dialog").get_by_role("button", name="Break fence").click()
        expect(page.locator(".sentence")).to_contain_text("is free")
        assert not visitor.wrongs
    until(hold.lost.is_set)


def test_sessions_waits_events_and_preferences(port: int, browser: Browser, queued: fencehold.Hold) -> None:
    """What a client holds and waits for, who waits for whom, what happens, and how one likes to see it."""
    with Visitor(browser, port, color_scheme="light") as visitor:
        page = visitor.go("sessions")
        page.get_by_label("Search sessions").fill("bob")
        expect(page.locator(".table-body .party-name")).to_have_text(["bob"])
        page.locator(".table-body .party-name").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("bob")
        expect(page.locator("main")).to_contain_text("jobs:nightly")
        page.keyboard.press("4")
        expect(page.locator(".drawing .box")).to_have_count(2)
        page.keyboard.press("5")
        expect(page.get_by_text("as they happen", exact=True)).to_be_visible()
        queued.extend(30)
        expect(page.locator(".events .badge").first).to_have_text("extended")
        page.keyboard.press("u")
        expect(page.locator(".events time").first).to_contain_text("UTC")
        page.keyboard.press("t")
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("search")
        assert not visitor.wrongs


POLICY = """
[roles.operator]
rules = [{ prefix = "", allow = ["acquire", "observe", "break", "events", "admin"] }]
[roles.billing]
rules = [{ prefix = "billing:", allow = ["acquire", "observe", "events"] }]
[users.root]
roles = ["operator"]
[users.bill]
roles = ["billing"]
"""


class Ruled(NamedTuple):
    """A server with a policy."""

    served: Served
    url: str
    """With an administrator's login."""


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ruled]:
    """With an administrator, and somebody who may see little."""
    place = tmp_path_factory.mktemp("ruled")
    for name, text in {"policy.toml": POLICY, "root": "secret-of-root", "bill": "secret-of-bill"}.items():
        (place / name).write_text(text)
    with serving(place, "--memory") as served:
        own = served.url.replace("://", "://root:secret-of-root@")
        for url, words in (
            (served.url, ("user", "add", "root", "--admin", "--secret-file", str(place / "root"))),
            (own, ("policy", "apply", str(place / "policy.toml"), "--yes")),
            (own, ("user", "secret", "bill", "--secret-file", str(place / "bill"))),
        ):
            said = served.call(*words, "--url", url)
            assert said.code == 0, said
        yield Ruled(served, own)


def test_one_signs_in_sees_what_one_may_and_is_asked_again_when_that_is_over(
    ruled: Ruled, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the service's own users and rights; names of others are not even counted."""
    with (
        fencehold.connect(ruled.url, name="root") as root,
        root.lock("billing:1"),
        root.lock("payroll:1"),
        door(tmp_path_factory.mktemp("door"), "http", ruled.served.url) as port,
        Visitor(browser, port) as visitor,
    ):
        page = visitor.page
        page.goto(visitor.base + "names")
        sign_in(page, "bill", "guessed")
        expect(page.get_by_role("alert")).to_contain_text("Not signed in")
        visitor.check_accessible()
        visitor.picture("light-sign-in")
        sign_in(page, "bill", "secret-of-bill")
        expect(page.locator(".table-body .name")).to_have_text(["billing:1"])
        expect(page.locator(".who")).to_contain_text("bill")
        visitor.go("name?name=billing%3A1")
        expect(page.locator(".sentence")).to_contain_text("is held by root")
        assert page.get_by_role("button", name="Break …").count() == 0
        page.goto(visitor.base + "name?name=payroll%3A1")
        expect(page.get_by_role("alert")).to_contain_text("Not allowed")
        _check_no_other_site_can_act(port, visitor)
        # The visit ends, as it does in time: whatever is open asks again, and then goes on where it was.
        visitor.go("names")
        visitor.context.clear_cookies()
        page.reload()
        sign_in(page, "root", "secret-of-root")
        expect(page.locator(".page-head .count")).to_have_text("2")
        visitor.go("name?name=billing%3A1")
        expect(page.get_by_role("button", name="Break …")).to_be_visible()
        page.get_by_role("button", name="sign out").click()
        sign_in(page, "bill", "secret-of-bill")
        expect(page.locator(".who")).to_contain_text("bill")
        # The login itself ends: a page that is open is told so.
        said = ruled.served.call("user", "disable", "bill", "--url", ruled.url)
        assert said.code == 0, said
        expect(page.get_by_label("User")).to_be_visible()
        assert not visitor.wrongs


def test_on_a_phone_one_can_choose_how_times_and_colours_are_shown_and_sign_out(
    ruled: Ruled, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """There is no keyboard, and no room at the side: it is one touch away."""
    options: dict[str, Any] = PHONE
    with (
        door(tmp_path_factory.mktemp("door"), "http", ruled.served.url) as port,
        Visitor(browser, port, **options) as visitor,
    ):
        page = visitor.page
        page.goto(visitor.base + "events")
        sign_in(page, "root", "secret-of-root")
        expect(page.get_by_role("button", name="sign out")).to_be_hidden()
        page.get_by_role("button", name="Display and account").tap()
        page.get_by_role("button", name="Times: local").tap()
        page.get_by_role("button", name="Theme: system").tap()
        assert page.evaluate("document.documentElement.dataset.theme") in ("light", "dark")
        expect(page.get_by_role("button", name="Times: utc")).to_be_visible()
        visitor.check_accessible()
        visitor.picture("phone-account")
        page.get_by_role("button", name="sign out").tap()
        expect(page.get_by_label("User")).to_be_visible()
        assert not visitor.wrongs


def test_a_certificate_of_the_browser_signs_in(browser: Browser, tmp_path: Path) -> None:
    """At a listener that may speak for those whose certificates it has checked; without one, one signs in."""
    authority, token, tokens = trustme.CA(), tmp_path / "listener", tmp_path / "tokens"
    token.write_text(new_token())
    add(tokens, Line("listener/edge", digest_of(token.read_text())))
    for name in ("edge", "ann"):
        issued = authority.issue_cert("127.0.0.1", common_name=name)
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    files = {"tls-cert": "edge.pem", "tls-key": "edge.key", "tls-ca": "ca.pem", "listener-token-file": "listener"}
    options = [word for option, file in files.items() for word in (f"--{option}", str(tmp_path / file))]
    with (
        serving(tmp_path, "--memory", "--auth", "required", "--tokens", str(tokens)) as served,
        door(tmp_path, "http", served.url, *options, "--tls-clients", "optional") as port,
    ):
        shown = {
            "origin": f"https://127.0.0.1:{port}",
            "certPath": tmp_path / "ann.pem",
            "keyPath": tmp_path / "ann.key",
        }
        with Visitor(browser, port, "https", ignore_https_errors=True) as nobody:
            nobody.page.goto(nobody.base)
            expect(nobody.page.get_by_label("User")).to_be_visible()
        with Visitor(browser, port, "https", ignore_https_errors=True, client_certificates=[shown]) as visitor:
            page = visitor.go("names")
            expect(page.locator(".who")).to_have_text("ann by certificate")
            assert page.get_by_role("button", name="sign out").count() == 0
            assert not visitor.wrongs


def sign_in(page: Page, user: str, secret: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Secret").fill(secret)
    page.get_by_role("button", name="Sign in", exact=True).click()


def _check_no_other_site_can_act(port: int, visitor: Visitor) -> None:
    """A cookie alone changes nothing: another site's page has no token, and cannot ask for one."""
    (cookie,) = visitor.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", cookies={cookie["name"]: cookie["value"]}) as http:
        token = http.get("/dashboard/api/session").json()["token"]
        said = {"name": "billing:1", "fence": 0}
        assert http.post("/dashboard/api/break", json=said).status_code == 403
        headers = {"x-fencehold-token": token, "sec-fetch-site": "cross-site"}
        assert http.post("/dashboard/api/break", json=said, headers=headers).status_code == 403
        # From the dashboard itself it is the service that says no: Bill may not break.
        answer = http.post("/dashboard/api/break", json=said, headers={"x-fencehold-token": token})
        assert (answer.status_code, answer.json()["reason"]) == (403, "DENIED")
        page = http.get("/dashboard/")
        assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


def test_a_page_that_is_opened_while_the_service_is_silent_says_so_and_what_to_do(
    server: Served, port: int, browser: Browser, client: fencehold.Client
) -> None:
    """And goes on by itself when it is heard again. One that is not there says where to go, and is live."""
    with Visitor(browser, port) as visitor, client.lock("quiet"):
        page = visitor.go("nowhere")
        expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
        server.pause()
        try:
            visitor.page.goto(visitor.base + "name?name=quiet")
            expect(page.locator(".banner.warn")).to_contain_text("The service has not answered yet. A new leader")
            visitor.picture("light-silent")
        finally:
            server.go_on()
        page.locator(".live.is-live").wait_for()
        expect(page.locator(".sentence")).to_contain_text("'quiet' is held by ann")
        assert not visitor.wrongs


def test_it_stays_open_over_a_change_of_leaders(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By a listener that knows only of a standby: it says when it is stale, and goes on by itself."""
    place = tmp_path_factory.mktemp("failover")
    etcd = EtcdCluster(place / "etcd", 1)
    try:
        etcd.start()
        with NodeGroup(etcd.url("dashboard"), place, 2) as nodes:
            leader = nodes.leader()
            (standby,) = [node for node in nodes.nodes if node is not leader]
            with (
                fencehold.connect(nodes.url, name="ann") as client,
                client.lock("before"),
                door(place, "http", standby.url) as port,
                Visitor(browser, port) as visitor,
            ):
                page = visitor.go("names")
                expect(page.locator(".table-body .name")).to_have_text(["before"])
                leader.kill()
                with client.lock("after"):
                    expect(page.locator(".table-body .name")).to_have_text(["before", "after"])
                page.locator(".live.is-live").wait_for()
                visitor.go("nodes")
                expect(page.locator(".nodes")).to_contain_text(standby.name)
                assert not visitor.wrongs
    finally:
        etcd.stop()
