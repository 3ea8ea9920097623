"""Visits: who is signed in, for how long, and that no other site acts for them."""

import pytest
import trustme
from starlette.requests import Request
from starlette.responses import Response

from fencehold.dashboard import visits
from fencehold.dashboard.visits import IDLE_S, LASTS_S, Visits, set_cookie
from fencehold.errors import PermissionDenied
from fencehold.gateway.credentials import ANONYMOUS, CERTIFICATE, Credentials

BILL = Credentials("bill", "secret")


def request(cookie: str = "", scheme: str = "http", certificate: str = "", **headers: str) -> Request:
    said = {"host": "127.0.0.1:7422", **{key.replace("_", "-"): value for key, value in headers.items()}}
    if cookie:
        said["cookie"] = f"fencehold_7422={cookie}"
    raw = [(key.encode(), value.encode()) for key, value in said.items()]
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": "/",
            "scheme": scheme,
            "headers": raw,
            "query_string": b"",
            "server": ("127.0.0.1", 7422),
            "state": {CERTIFICATE: certificate.encode()},
        }
    )


def test_a_visit_is_found_by_its_cookie_until_it_is_idle_or_old() -> None:
    """Then, nobody is there."""
    now = [0.0]
    kept = Visits(lambda: now[0])
    visit = kept.begin(BILL)
    assert kept.of(request(visit.cookie)).credentials == BILL
    assert kept.of(request("another")).credentials == ANONYMOUS
    now[0] = IDLE_S + 1
    assert kept.of(request(visit.cookie)).credentials == ANONYMOUS
    busy = kept.begin(BILL)
    while now[0] < 3 * LASTS_S and kept.of(request(busy.cookie)).credentials == BILL:
        now[0] += IDLE_S / 2
    assert LASTS_S < now[0] - busy.began_at < LASTS_S + IDLE_S


def test_scripts_may_say_who_they_are_by_a_header() -> None:
    """As everywhere else."""
    assert Visits().of(request(authorization="Bearer abc")).credentials == Credentials("token", "abc")


def test_a_certificate_signs_in_whom_it_names_unless_somebody_has_signed_in() -> None:
    """It is the same visit in every window, and another site cannot act by it."""
    kept, authority = Visits(), trustme.CA()
    ann, bob = (
        authority.issue_cert("a.example", common_name=name).cert_chain_pems[0].bytes().decode()
        for name in ("ann", "bob")
    )
    visit = kept.of(request(certificate=ann))
    assert visit.credentials == Credentials("ann", is_vouched=True)
    assert kept.of(request(certificate=ann)).token == visit.token != kept.of(request(certificate=bob)).token
    kept.check(request(certificate=ann, x_fencehold_token=visit.token), visit)
    with pytest.raises(PermissionDenied):
        kept.check(request(certificate=ann, x_fencehold_token=visit.token, sec_fetch_site="cross-site"), visit)
    with pytest.raises(PermissionDenied):
        kept.check(request(certificate=ann), visit)
    assert kept.of(request(kept.begin(BILL).cookie, certificate=ann)).credentials == BILL


def test_what_changes_something_needs_the_token_and_the_same_site() -> None:
    """Of this visit, and not of another; those who said nothing of themselves have one, too."""
    kept = Visits()
    visit, nobody = kept.begin(BILL), kept.of(request())
    kept.check(request(x_fencehold_token=visit.token), visit)
    kept.check(request(x_fencehold_token=nobody.token), nobody)
    for said in (
        {},
        {"x_fencehold_token": nobody.token},
        {"x_fencehold_token": visit.token, "sec_fetch_site": "cross-site"},
        {"x_fencehold_token": visit.token, "sec_fetch_site": "same-site"},
    ):
        with pytest.raises(PermissionDenied):
            kept.check(request(**said), visit)


def test_visits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was used least lately ends first."""
    monkeypatch.setattr(visits, "VISITS_MAX", 2)
    kept = Visits()
    first, second = kept.begin(BILL), kept.begin(BILL)
    kept.of(request(first.cookie))
    kept.begin(BILL)
    assert kept.of(request(second.cookie)).credentials == ANONYMOUS
    assert kept.of(request(first.cookie)).credentials == BILL
    assert not kept.end(first)


@pytest.mark.parametrize(("scheme", "is_secure"), [("http", False), ("https", True)])
def test_the_cookie_is_for_this_site_only_and_not_for_scripts(scheme: str, is_secure: bool) -> None:
    """And over TLS, for TLS only."""
    response, visit = Response(), Visits().begin(BILL)
    set_cookie(request(scheme=scheme), response, visit)
    cookie = response.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/dashboard"} <= set(cookie.split("; "))
    assert ("Secure" in cookie) is is_secure
    assert "secret" not in cookie
