"""try-wheel.py FENCEHOLD: use an installed Fencehold as a new user does: its command, its server, both clients."""

import asyncio
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fencehold
from fencehold.build import kind


def blocking(url: str) -> int:
    with fencehold.connect(url) as client, client.lock("wallet:7", timeout=5) as hold:
        hold.check()
        return hold.fence


async def awaited(url: str) -> int:
    async with fencehold.aio.connect(url) as client, client.lock("wallet:7", timeout=5) as hold:
        hold.check()
        return hold.fence


def use(program: str, folder: Path) -> None:
    """Start a server, take locks in every way, stop it."""
    port_file = folder / "port"
    command = [program, "serve", "--port", "0", "--port-file", str(port_file), "--data", str(folder / "data")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + 60
            while not port_file.exists():
                if server.poll() is not None or time.monotonic() > until:
                    sys.exit("wheel: the server did not start")
                time.sleep(0.05)
            url = f"fencehold://127.0.0.1:{port_file.read_text().strip()}"
            fences = [blocking(url), asyncio.run(awaited(url))]
            told = subprocess.run(
                [program, "run", "--url", url, "wallet:7", "--", "sh", "-c", "echo $FENCEHOLD_FENCE"],
                check=True,
                capture_output=True,
                text=True,
                timeout=60,
            )
            fences.append(int(told.stdout))
        finally:
            server.terminate()
    if server.returncode != 0 or fences != sorted(set(fences)):
        sys.exit(f"wheel: exit code {server.returncode}, fences {fences}")


def main() -> None:
    installed = Path(fencehold.__file__).parent
    if "site-packages" not in installed.parts or not (installed / "py.typed").exists():
        sys.exit(f"wheel: imported from {installed}, which is no installed package with types")
    with tempfile.TemporaryDirectory() as folder:
        use(sys.argv[1], Path(folder))
    print(f"wheel: works on Python {platform.python_version()}, {kind()}")


if __name__ == "__main__":
    main()
