"""What a client is connected to: which source serves which tier, and what is refused before anything happens."""

from pathlib import Path
from typing import Any

import pytest

from fencehold import CORRECTNESS, EFFICIENCY, Unsupported, UsageError, aio
from fencehold.backends import registry
from fencehold.backends.port import Backend, Settings
from fencehold.client.config import Config, configured
from fencehold.client.connect import Plan, Source, plan_of
from fencehold.drivers.tls import ClientTls
from fencehold.guarantees import Guarantees
from fencehold.types import Tier
from tests.unit.security.authority import Authority

SERVICE = "fencehold://10.0.0.1"


def plan(url: str | None = None, **said: Any) -> Plan:
    return plan_of(configured(url, **said))


class Weak:
    """A backend for EFFICIENCY only, as a Redis is one."""

    def __init__(self, *, linearizable: bool = False) -> None:
        self.guarantees = Guarantees("weak", linearizable, False, False, False, False, 30.0, "all")


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `weak://` be the URL of a backend to be used directly; `weak://fenceless` is linearizable."""
    backend_of = registry.backend_of

    def found(url: str, settings: Settings) -> Backend | Weak:
        return Weak(linearizable="fenceless" in url) if url.startswith("weak") else backend_of(url, settings)

    monkeypatch.setattr(registry, "SCHEMES", (*registry.SCHEMES, "weak"))
    monkeypatch.setattr(registry, "backend_of", found)


def kinds(of: Plan) -> dict[Tier, list[str]]:
    """What each tier is served by, from the outside in."""
    return {tier: _kinds(source) for tier, source in of.sources.items()}


def _kinds(source: Source) -> list[str]:
    around = [word for word, is_so in (("proceed", source.proceeds), ("breaker", source.has_breaker)) if is_so]
    return [*around, source.url.partition("://")[0]]


def test_one_service_is_asked_without_a_detour() -> None:
    """For either tier: no breaker, nothing to go through."""
    assert kinds(plan(SERVICE)) == {EFFICIENCY: ["fencehold"], CORRECTNESS: ["fencehold"]}
    assert all(source.is_service for source in plan(SERVICE).sources.values())
    assert kinds(plan(correctness=SERVICE)) == kinds(plan(SERVICE))


def test_a_backend_used_directly_has_a_breaker(weak: None) -> None:
    """And nothing for the tier that it cannot give."""
    assert kinds(plan("weak://")) == {EFFICIENCY: ["breaker", "weak"]}
    assert kinds(plan(efficiency="weak://")) == {EFFICIENCY: ["breaker", "weak"]}


def test_several_sources_have_a_breaker_each(weak: None) -> None:
    """The one for EFFICIENCY takes the place of what the other could do as well."""
    assert kinds(plan(correctness=SERVICE, efficiency="weak://")) == {
        CORRECTNESS: ["breaker", "fencehold"],
        EFFICIENCY: ["breaker", "weak"],
    }
    both = plan(correctness="memory://a", efficiency="memory://b")
    urls = {tier: source.url for tier, source in both.sources.items()}
    assert urls == {CORRECTNESS: "memory://a", EFFICIENCY: "memory://b"}


def test_only_efficiency_goes_on_without_a_lock(weak: None) -> None:
    """However the sources were said, nothing is put around the one that protects state."""
    assert kinds(plan(SERVICE, on_unavailable="proceed")) == {
        CORRECTNESS: ["fencehold"],
        EFFICIENCY: ["proceed", "breaker", "fencehold"],
    }
    assert kinds(plan("memory://", on_unavailable="proceed")) == {
        CORRECTNESS: ["memory"],
        EFFICIENCY: ["proceed", "breaker", "memory"],
    }
    assert kinds(plan(correctness=SERVICE, efficiency="weak://", on_unavailable="proceed")) == {
        CORRECTNESS: ["breaker", "fencehold"],
        EFFICIENCY: ["proceed", "breaker", "weak"],
    }


def test_what_may_go_on_without_a_lock_gives_no_correctness() -> None:
    """Its guarantees are less than those of its source, and say so."""
    assert plan("memory://").source(EFFICIENCY).guarantees.gives(CORRECTNESS)
    source = plan("memory://", on_unavailable="proceed").source(EFFICIENCY)
    assert not source.guarantees.gives(CORRECTNESS)


@pytest.mark.parametrize("on_unavailable", ["raise", "proceed"])
def test_what_cannot_protect_state_is_not_asked_to(weak: None, on_unavailable: str) -> None:
    """Not even by being named for it; the message says why, and what to do."""
    with pytest.raises(Unsupported, match="weak:// cannot give CORRECTNESS, as it may have two holders"):
        plan("weak://", on_unavailable=on_unavailable).source(CORRECTNESS)
    with pytest.raises(Unsupported, match="weak:// cannot give CORRECTNESS"):
        plan(correctness="weak://", efficiency=SERVICE, on_unavailable=on_unavailable)
    with pytest.raises(Unsupported, match="has no fence that only grows"):
        plan("weak://fenceless", on_unavailable=on_unavailable).source(CORRECTNESS)


@pytest.mark.parametrize("on_unavailable", ["raise", "proceed"])
def test_what_was_named_for_efficiency_only_serves_nothing_else(on_unavailable: str) -> None:
    """It could do more, but was not asked to."""
    with pytest.raises(Unsupported, match="no source for CORRECTNESS: pass correctness="):
        plan(efficiency=SERVICE, on_unavailable=on_unavailable).source(CORRECTNESS)


def test_a_client_is_first_connected_to_what_protects_state(weak: None) -> None:
    """If it has that."""
    both = plan(correctness=SERVICE, efficiency="weak://")
    assert both.first is both.sources[CORRECTNESS]
    assert plan("weak://").first.guarantees.backend == "weak"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"url": SERVICE, "efficiency": SERVICE}, "either one URL, or correctness= and efficiency="),
        ({"url": SERVICE, "on_unavailable": "ignore"}, "on_unavailable is 'raise' or 'proceed', not 'ignore'"),
        ({"correctness": "ftp://host"}, "a URL begins with one of"),
        ({"correctness": ""}, "a URL begins with one of"),
        ({"correctness": SERVICE, "efficiency": ""}, "a URL begins with one of"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict[str, Any], words: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(UsageError, match=words):
        plan(**said)


def test_a_configuration_is_checked_where_it_is_made() -> None:
    """Whoever makes it: an option that is not known is no part of it."""
    with pytest.raises(UsageError, match="ttl is at least"):
        Config(ttl=0.01)
    with pytest.raises(TypeError, match="tll"):
        Config(tll=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"tls must be an ssl.SSLContext, got 'yes'"):
        Config(tls="yes")  # type: ignore[arg-type]


def test_both_tiers_of_a_service_over_tls_have_one_context() -> None:
    """To make one reads all certificates of the machine."""
    sources = plan("fenceholds://10.0.0.1").sources
    assert sources[CORRECTNESS].tls is not None
    assert sources[EFFICIENCY].tls is sources[CORRECTNESS].tls
    assert plan(SERVICE).first.tls is None


def test_the_files_of_tls_come_from_the_nearest_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL, the environment, the configuration; what cannot be read is said before anything is connected to."""
    authority = Authority(tmp_path)
    mine, other = authority.client("mine", name="mine"), authority.client("other", name="other")
    (tmp_path / "client.toml").write_text(
        f'[client]\nca = "{authority.file}"\ncert = "{mine.cert}"\nkey = "{mine.key}"\n'
    )
    config = tmp_path / "client.toml"
    assert files("fenceholds://h", config=config) == (authority.file, *mine)
    monkeypatch.setenv("FENCEHOLD_CERT", str(other.cert))
    monkeypatch.setenv("FENCEHOLD_KEY", str(other.key))
    assert files("fenceholds://h", config=config) == (authority.file, *other)
    assert files(f"fenceholds://h?cert={mine.cert}&key={mine.key}") == (None, *mine)
    assert plan("fencehold://h", config=config).first.tls is None
    with pytest.raises(UsageError, match="ca=/nowhere cannot be read"):
        plan("fenceholds://h?ca=/nowhere")


def files(url: str, **said: Any) -> tuple[Path | None, ...]:
    tls = plan(url, **said).first.tls
    assert isinstance(tls, ClientTls)
    ca, cert, key, crl = tls.files.paths
    assert crl is None
    return ca, cert, key


def test_a_login_that_cannot_be_read_is_refused_before_anything_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for a service: memory:// is the process's own, and asks nobody."""
    monkeypatch.setenv("FENCEHOLD_TOKEN_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="cannot read a secret from"):
        plan(SERVICE)
    assert plan("fencehold://me:hush@10.0.0.1").first.is_service


async def test_a_login_of_the_environment_is_not_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is meant for the service does not keep a program from trying things out."""
    monkeypatch.setenv("FENCEHOLD_USER", "ann")
    monkeypatch.setenv("FENCEHOLD_SECRET", "hush")
    async with aio.connect("memory://logins") as client, client.lock("a") as hold:
        assert hold.fence


async def test_a_scheme_may_be_written_in_capitals() -> None:
    """As in any URL; and it is the same service."""
    async with aio.connect("MEMORY://capitals") as one, aio.connect("memory://capitals") as other:
        async with one.lock("a"):
            assert await other.lock("a").acquire(timeout=0) is None
    assert plan("FENCEHOLD://h").first.guarantees.backend == "fencehold"
    assert plan("FENCEHOLDS://h").first.tls is not None
    assert plan("SQLITE:///locks.db").first.guarantees.backend == "sqlite"
