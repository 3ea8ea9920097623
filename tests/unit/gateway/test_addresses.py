"""The URL of the service is read by a listener's questions as by its clients: one spelling, one meaning."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fencehold.cli.app import build
from fencehold.errors import UsageError
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import ANONYMOUS, Credentials
from fencehold.gateway.problems import Unauthenticated
from fencehold.gateway.questions import Questions
from fencehold.gateway.upstream import Upstream
from fencehold.types import CORRECTNESS
from tests.unit.security.authority import Authority

ANA = Credentials("ana", "hush-hush")
TLS_HANDSHAKE = 0x16
PLAIN = ["fencehold://{}", "FENCEHOLD://{}", "fencehold://own:p#1@{}", "fencehold://{}/", "fencehold://{}?tls=no"]
SECURE = [
    "fenceholds://{}",
    "FenceHolds://{}",
    "fenceholds://{}?tls=yes",
    "fenceholds://own:a%2Fb@{}/?tls=on",
    *(f"fencehold://{{}}?tls={yes}" for yes in ("yes", "true", "on", "1")),
    "FENCEHOLD://{}?tls=yes",
    "fencehold://{}?%74ls=yes",
    "fencehold://{}?tls=yes&ca={ca}",
    "fenceholds://{}?ca={ca}",
]
REFUSED = [
    "redis://h",
    "h:7420",
    "fencehold://",
    "fencehold://h:x",
    "fencehold://h:99999",
    "fencehold://h?wrong=1",
    "fencehold://h?ca=/ca",
    "fencehold://h?tls=maybe",
    "fenceholds://h?tls=unchecked",
    "fenceholds://h?tls=no",
    "fenceholds://h?ca=/a@b/ca.pem",
]


class Eavesdropper:
    """Takes down the first that each connection sends, and hangs up."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.has_heard = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if data := await reader.read(65_536):
            self.heard.append(data)
            self.has_heard.set()
        writer.close()


@asynccontextmanager
async def eavesdropped(form: str, folder: Path) -> AsyncIterator[tuple[str, Eavesdropper]]:
    ear = Eavesdropper()
    server = await asyncio.start_server(ear.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield form.format(f"127.0.0.1:{port}", ca=Authority(folder).file), ear
    finally:
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.gather(*others, return_exceptions=True)


async def heard_of(form: str, folder: Path, call: Callable[[Upstream], Awaitable[object]]) -> bytes:
    """What is first sent for a call: it goes on until something is."""
    async with eavesdropped(form, folder) as (url, ear):
        upstream = Upstream(url, via="test", connect_timeout_s=60)
        calling = asyncio.ensure_future(call(upstream))
        await ear.has_heard.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await upstream.questions.close()
        await upstream.close()
    return ear.heard[0]


WAYS: dict[str, Callable[[Upstream], Awaitable[object]]] = {
    "question": lambda upstream: upstream.questions.ask(ANA, CORRECTNESS, "PING", within_s=60),
    "client": lambda upstream: upstream.connect(ANA, name="", meta={}, ttl_s=10.0),
}
BOTH = pytest.mark.parametrize("way", WAYS)


@BOTH
@pytest.mark.parametrize("form", SECURE)
async def test_where_tls_is_asked_for_nothing_is_written_in_plain_text(
    form: str, way: str, tmp_path: Path
) -> None:
    """By no way of asking for it, on neither path."""
    heard = await heard_of(form, tmp_path, WAYS[way])
    assert heard[0] == TLS_HANDSHAKE
    assert b"hush" not in heard


@BOTH
@pytest.mark.parametrize("form", PLAIN)
async def test_where_it_is_not_both_paths_greet_with_the_login_of_the_client(
    form: str, way: str, tmp_path: Path
) -> None:
    """And never with that of the URL."""
    heard = await heard_of(form, tmp_path, WAYS[way])
    assert b"HELLO" in heard
    assert b"hush-hush" in heard
    assert b"p#1" not in heard


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_no_url_of_a_service_is_refused_before_anything_listens(url: str) -> None:
    """By the command, and by both paths."""
    with pytest.raises(UsageError):
        Questions(url, None, GatewayBounds())
    with pytest.raises(UsageError):
        Upstream(url, via="test")
    words = ["listener", "http", "--url", url, "--port", "0"]
    result = CliRunner().invoke(build(words), words)
    assert result.exit_code == 2, result.output


async def test_questions_of_the_gateway_itself_are_asked_with_the_login_of_its_url(tmp_path: Path) -> None:
    """Decoded."""
    heard = await heard_of("fencehold://own:a%2Fb@{}", tmp_path, lambda upstream: upstream.questions.roles())
    assert b"own" in heard
    assert b"a/b" in heard


async def test_a_certificate_of_the_environment_is_not_lent_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of the SDK would show it for whoever sends no login."""
    pair = Authority(tmp_path).client("listener")
    monkeypatch.setenv("FENCEHOLD_CERT", str(pair.cert))
    monkeypatch.setenv("FENCEHOLD_KEY", str(pair.key))
    async with eavesdropped("fenceholds://{}", tmp_path) as (url, ear):
        questions = Questions(url, None, GatewayBounds(), connect_timeout_s=0.2)
        upstream = Upstream(url, via="test", questions=questions, connect_timeout_s=0.2)
        with pytest.raises(Unauthenticated):
            await questions.ask(ANONYMOUS, CORRECTNESS, "PING")
        with pytest.raises(Unauthenticated):
            await upstream.connect(ANONYMOUS, name="", meta={}, ttl_s=10.0)
        await upstream.close()
        await questions.close()
    assert not ear.heard
