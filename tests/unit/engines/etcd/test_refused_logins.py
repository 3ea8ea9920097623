"""Getting into an etcd that is guarded: TLS with certificates on both sides, users with passwords and roles."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from fencehold.engines.etcd import EtcdJournal
from fencehold.errors import NotAdmitted, Unavailable, UsageError
from fencehold.types import Position
from rig.etcd import EtcdCluster
from tests.contract.harness import fill, leading, read_all, run
from tests.contract.test_tail import Follower
from tests.unit.drivers.etcd.guarded import LOGIN, PASSWORD, issued, with_tls, with_users

pytestmark = pytest.mark.slow


async def use(journal: EtcdJournal) -> None:
    """All that a node does with a journal."""
    async with leading(journal) as (_, epoch):
        follower = Follower(journal)
        records = await fill(journal, epoch, range(1, 11))
        await follower.until(10)
        for position in (5, 10):
            await journal.save(Position(position), [b"state"])
            await journal.trim()
        assert await read_all(journal, 10) == []
    await follower.task
    assert follower.seen == records


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with with_tls(tmp_path_factory.mktemp("tls")) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def peopled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with with_users(tmp_path_factory.mktemp("users")) as etcd:
        yield etcd


def test_a_journal_is_kept_over_tls(guarded: EtcdCluster) -> None:
    """With the authority and a certificate of our own, everything works as without."""
    run(use(EtcdJournal.from_url(guarded.url("over-tls"))))


@pytest.mark.parametrize("wrong", ["no certificate", "certificate of a stranger", "no authority", "no TLS"])
def test_who_is_not_let_in_by_tls_is_told_so(guarded: EtcdCluster, tmp_path: Path, wrong: str) -> None:
    """Certainly nothing happened; it is told within the deadline, and with what to look at."""
    url = guarded.url("locked-out")
    stranger = issued(trustme.CA(), tmp_path / "stranger")
    ca, _, pair = url.partition("&")
    urls = {
        "no certificate": ca,
        "certificate of a stranger": f"{ca}&cert={stranger.cert}&key={stranger.key}",
        "no authority": f"{url.partition('?')[0]}?{pair}",
        "no TLS": url.partition("?")[0].replace("etcds", "etcd"),
    }
    with pytest.raises(Unavailable, match="does it speak TLS"):
        run(EtcdJournal.from_url(urls[wrong]).open())


def test_a_file_that_is_not_there_is_a_usage_error() -> None:
    """The message names the option and the file."""
    with pytest.raises(UsageError, match=r"ca=/nowhere/ca\.pem"):
        run(EtcdJournal.from_url("etcds://127.0.0.1:1?ca=/nowhere/ca.pem").open())


def test_a_journal_is_kept_as_a_user(peopled: EtcdCluster) -> None:
    """A user with a role for the prefix can do all that a node does."""
    run(use(EtcdJournal.from_url(peopled.url("locks/mine", user=LOGIN))))


def test_a_token_that_ran_out_is_renewed(peopled: EtcdCluster) -> None:
    """A member that was restarted knows no token any more; the journal logs in anew, unseen by its caller."""

    async def work() -> None:
        async with leading(EtcdJournal.from_url(peopled.url("locks/renewed", user=LOGIN))) as (journal, epoch):
            records = await fill(journal, epoch, [1])
            peopled.restart(0)
            peopled.await_healthy()
            records += await fill(journal, epoch, range(2, 4))
            assert await read_all(journal) == records

    run(work())


@pytest.mark.parametrize(
    ("login", "prefix", "says"),
    [
        ("", "locks", "put user:password"),
        ("locks:hunter2", "locks", "no such user"),
        ("nobody:hunter2", "locks", "no such user"),
        (LOGIN, "elsewhere", "grant"),
    ],
)
def test_who_is_not_let_in_as_a_user_is_told_what_to_do(
    peopled: EtcdCluster, login: str, prefix: str, says: str
) -> None:
    """The message says what is wrong, and shows no password."""
    with pytest.raises(NotAdmitted, match=says) as caught:
        run(EtcdJournal.from_url(peopled.url(prefix, user=login)).open())
    assert "hunter2" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_login_where_there_are_no_users_is_told_so(guarded: EtcdCluster) -> None:
    """An etcd without users refuses a login rather than ignore it, and so do we."""
    with pytest.raises(NotAdmitted, match="turned off"):
        run(EtcdJournal.from_url(guarded.url("nobody", user=LOGIN)).open())
