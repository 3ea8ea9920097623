"""The mistakes of a new user: each is made here, and a page shows what is said. `--rewrite` writes it anew."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fencehold
from fencehold import aio
from rig.processes import free_port
from rig.redis import Redis
from tests.e2e.served import Served, serving

PAGE = Path(__file__).parents[2] / "docs/reference/mistakes.md"
HEAD = """# Mistakes, and what is said about them

What new users get wrong, and the message they see. Each of these is made by a test, which checks this page.

"""


@dataclass
class Scene:
    """Where mistakes are made."""

    url: str
    port: int
    redis_port: int
    nobody: int
    folder: Path

    def plain(self, text: str) -> str:
        """What was said, with what differs from run to run as a reader would write it."""
        for port, name in ((self.port, "7420"), (self.redis_port, "6379"), (self.nobody, "7499")):
            text = text.replace(str(port), name)
        # These are tried for less long here than by default.
        text = re.sub(r"within [\d.]+ s", "within 5 s", text)
        text = re.sub(r"(fence|fences?:?) \d+", r"\1 7", text)
        text = re.sub(r"for \d+\.\d s", "for 0.1 s", text)
        text = re.sub(r"since \d\d:\d\d:\d\d", "since 02:41:07", text)
        return re.sub(r" on \S+ \(pid \d+\)", " on web1 (pid 81)", text)


Mistake = Callable[[Scene], object]
MISTAKES: list[tuple[str, str, Mistake]] = []


def mistake(title: str, code: str) -> Callable[[Mistake], Mistake]:
    """Enter a mistake: its title, and the code that makes it, as the page shows it."""

    def enter(make: Mistake) -> Mistake:
        MISTAKES.append((title, code, make))
        return make

    return enter


def client(scene: Scene, **options: Any) -> fencehold.Client:
    return fencehold.connect(scene.url, name="worker", **options)


async def with_aio(scene: Scene, use: Callable[[aio.Client], Awaitable[object]]) -> None:
    async with aio.connect(scene.url) as it:
        await use(it)


@mistake("The server does not run", 'fencehold.connect("fencehold://127.0.0.1:7499")')
def nobody_listens(scene: Scene) -> None:
    fencehold.connect(f"fencehold://127.0.0.1:{scene.nobody}", connect_timeout=0.2)


@mistake("The host does not exist", 'fencehold.connect("fencehold://lokcs.invalid")')
def no_such_host(scene: Scene) -> None:
    fencehold.connect("fencehold://lokcs.invalid", connect_timeout=2)


@mistake("A Redis is at that port", 'fencehold.connect("fencehold://127.0.0.1:6379")')
def a_redis_answers(scene: Scene) -> None:
    fencehold.connect(f"fencehold://127.0.0.1:{scene.redis_port}", connect_timeout=2)


@mistake(
    "A Fencehold is at the port of a Redis",
    'fencehold.connect("redis://127.0.0.1:7420").lock("a", tier="efficiency").acquire()',
)
def a_fencehold_answers(scene: Scene) -> None:
    with fencehold.connect(f"redis://127.0.0.1:{scene.port}") as it:
        it.lock("a", tier=fencehold.EFFICIENCY).acquire()


@mistake("TLS to a plain port", 'fencehold.connect("fenceholds://127.0.0.1:7420")')
def tls_to_plain(scene: Scene) -> None:
    fencehold.connect(f"fenceholds://127.0.0.1:{scene.port}", connect_timeout=0.5)


@mistake("Something else is at that port", 'fencehold.connect("fencehold://127.0.0.1:7499")  # a web server')
def another_protocol(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", scene.nobody)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4_096)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        try:
            fencehold.connect(f"fencehold://127.0.0.1:{scene.nobody}", connect_timeout=0.3)
        finally:
            server.shutdown(socket.SHUT_RDWR)


@mistake("A port for a URL", "fencehold.connect(7420)")
def a_port_for_a_url(scene: Scene) -> None:
    fencehold.connect(7420)  # type: ignore[arg-type]


@mistake("No scheme", 'fencehold.connect("127.0.0.1:7420")')
def no_scheme(scene: Scene) -> None:
    fencehold.connect("127.0.0.1:7420")


@mistake("A switch for TLS", 'fencehold.connect("fencehold://127.0.0.1:7420", tls=True)')
def a_switch_for_tls(scene: Scene) -> None:
    fencehold.connect(scene.url, tls=True)  # type: ignore[arg-type]


@mistake("A mistyped scheme", 'fencehold.connect("fencehol://user:secret@127.0.0.1:7420")')
def mistyped_scheme(scene: Scene) -> None:
    fencehold.connect("fencehol://user:secret@127.0.0.1:7420")


@mistake("None as a name", "client.lock(None)")
def none_as_a_name(scene: Scene) -> None:
    with client(scene) as it:
        it.lock(None)  # type: ignore[call-overload]


@mistake("An empty name", 'client.lock("")')
def an_empty_name(scene: Scene) -> None:
    with client(scene) as it:
        it.lock("")


@mistake("A ttl of 0", 'client.lock("a", ttl=0)')
def a_ttl_of_nothing(scene: Scene) -> None:
    with client(scene) as it:
        it.lock("a", ttl=0)


@mistake("A ttl in milliseconds", 'client.lock("a", ttl=30_000_000).acquire()')
def a_ttl_in_milliseconds(scene: Scene) -> None:
    with client(scene) as it:
        it.lock("a", ttl=30_000_000).acquire()


@mistake("A duration that is none", 'client.lock("a", ttl="30 sec")')
def a_duration_that_is_none(scene: Scene) -> None:
    with client(scene) as it:
        it.lock("a", ttl="30 sec")


@mistake("An option by its place", 'client.lock("a", 30)')
def an_option_by_place(scene: Scene) -> None:
    with client(scene) as it:
        it.lock("a", 30)  # type: ignore[call-overload]


@mistake("An option that does not exist", 'client.lock("a", time_out=5)')
def an_unknown_option(scene: Scene) -> None:
    with client(scene) as it:
        it.lock("a", time_out=5)  # type: ignore[call-overload]


@mistake("A tier that does not exist", 'client.lock("a", tier="fast")')
def an_unknown_tier(scene: Scene) -> None:
    with client(scene) as it:
        it.lock("a", tier="fast")


@mistake("A lock within itself", 'with client.lock("a"), client.lock("a"): ...')
def nested(scene: Scene) -> None:
    with client(scene) as it, it.lock("a"), it.lock("a"):
        pass


@mistake("The only permit, again", 'slots = client.semaphore("a", 1); slots.acquire(); slots.acquire()')
def the_only_permit(scene: Scene) -> None:
    with client(scene) as it:
        slots = it.semaphore("a", 1)
        slots.acquire()
        slots.acquire()


@mistake("Another client holds it", 'with client.lock("a", timeout=0): ...')
def busy(scene: Scene) -> None:
    with client(scene) as one, client(scene) as other, one.lock("a"), other.lock("a", timeout=0):
        pass


@mistake("Released twice", "hold.release(); hold.release()")
def released_twice(scene: Scene) -> None:
    with client(scene) as it:
        hold = it.lock("a").acquire()
        hold.release()
        hold.release()


@mistake("Used after close", 'client.close(); client.lock("a").acquire()')
def used_after_close(scene: Scene) -> None:
    it = client(scene)
    it.close()
    it.lock("a").acquire()


@mistake("`with` for `async with`", 'with aio_client.lock("a"): ...')
def with_for_async_with(scene: Scene) -> None:
    async def use(it: aio.Client) -> None:
        with it.lock("a"):  # type: ignore[attr-defined]
            pass

    asyncio.run(with_aio(scene, use))


@mistake("`async with` for `with`", 'async with client.lock("a"): ...')
def async_with_for_with(scene: Scene) -> None:
    async def use() -> None:
        with client(scene) as it:
            async with it.lock("a"):  # type: ignore[attr-defined]
                pass

    asyncio.run(use())


@mistake("`await` forgotten", 'client = fencehold.aio.connect("fencehold://127.0.0.1"); client.lock("a")')
def an_await_forgotten(scene: Scene) -> None:
    aio.connect(scene.url).lock("a")  # type: ignore[attr-defined]


@mistake("A client of another event loop", "asyncio.run(use(client))  # connected in another asyncio.run")
def another_loop(scene: Scene) -> None:
    async def connect() -> aio.Client:
        return await aio.connect(scene.url)

    async def use(it: aio.Client) -> None:
        await it.lock("a").acquire()

    first = asyncio.new_event_loop()
    it = first.run_until_complete(connect())
    try:
        asyncio.run(use(it))
    finally:
        first.run_until_complete(it.close())
        first.close()


@mistake("A lock around a coroutine function", '@client.lock("a")\nasync def charge(): ...')
def around_a_coroutine(scene: Scene) -> None:
    with client(scene) as it:

        @it.lock("a")
        async def charge() -> None: ...


@mistake("The parent's hold in a forked child", "os.fork()  # in the child: hold.check()")
def forked(scene: Scene) -> None:
    with client(scene) as it, it.lock("a") as hold:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                hold.check()
            except fencehold.FenceholdError as error:
                os.write(write, f"{type(error).__name__}\n{error}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read) as said:
            kind, _, words = said.read().partition("\n")
        raise getattr(fencehold, kind)(words)


@mistake(
    "A fence asked of what has none", 'fencehold.connect("redis://…").lock("a")  # CORRECTNESS is the default'
)
def no_fence_there(scene: Scene) -> None:
    with fencehold.connect(f"redis://127.0.0.1:{scene.redis_port}") as it:
        it.lock("a")


@mistake("A command without its arguments", "$ redis-cli -p 7420 LOCK.RELEASE wallet:7")
def a_short_command(scene: Scene) -> str:
    command = ["redis-cli", "-p", str(scene.port), "LOCK.RELEASE", "wallet:7"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@mistake("A Redis command", "$ redis-cli -p 7420 GET wallet:7")
def a_redis_command(scene: Scene) -> str:
    command = ["redis-cli", "-p", str(scene.port), "GET", "wallet:7"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@mistake("The command line without a server", "$ fencehold ls --url fencehold://127.0.0.1:7499")
def a_command_without_a_server(scene: Scene) -> str:
    command = [sys.executable, "-m", "fencehold.cli", "ls", "--url", f"fencehold://127.0.0.1:{scene.nobody}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@mistake("The command line at the port of a Redis", "$ fencehold ls --url fencehold://127.0.0.1:6379")
def a_command_at_a_redis(scene: Scene) -> str:
    command = [sys.executable, "-m", "fencehold.cli", "ls", "--url", f"fencehold://127.0.0.1:{scene.redis_port}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("mistakes")
    redis = Redis(folder / "redis")
    redis.start()
    try:
        with serving(folder, "--memory") as server:
            yield Scene(server.url, _port(server), redis.port, free_port(), folder)
    finally:
        redis.stop()


def _port(server: Served) -> int:
    return int(server.url.rpartition(":")[2])


def said(scene: Scene, make: Mistake) -> str:
    """What is said of a mistake: an error's kind and words, or what a program wrote."""
    try:
        written = make(scene)
    except (fencehold.FenceholdError, AttributeError) as error:
        return scene.plain(f"{type(error).__name__}: {error}")
    assert isinstance(written, str), f"{make.__name__} was taken without a word"
    return scene.plain(written.strip())


def entry(title: str, code: str, words: str) -> str:
    """One mistake, as the page shows it."""
    shown = code if code.startswith("$") else f">>> {code}".replace("\n", "\n... ")
    return f"## {title}\n\n```text\n{shown}\n{words}\n```\n"


def test_every_mistake_is_told_as_the_page_says(scene: Scene, request: pytest.FixtureRequest) -> None:
    """What happened, with what was given, and what to do."""
    entries = [entry(title, code, said(scene, make)) for title, code, make in MISTAKES]
    page = HEAD + "\n".join(entries)
    if request.config.getoption("--rewrite"):
        PAGE.write_text(page)
    assert len(entries) >= 25
    assert PAGE.read_text() == page
