"""The compiled build (docs/how-to/compiled-build.md), which `make compiled-build` leaves to be measured
beside the pure one.

What was compiled of other source than this checkout's is not measured: its figures would be of something else.
"""

import filecmp
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_SOURCE = _ROOT / "src" / "fencehold"
_ENVIRONMENT = _ROOT / ".venv-compiled"


def python(environment: Path = _ENVIRONMENT, source: Path = _SOURCE) -> str | None:
    """The interpreter that has the compiled build of this source; None if there is none."""
    interpreter = environment / "bin" / "python"
    for installed in environment.glob("lib/python3*/site-packages/fencehold"):
        if not any(installed.glob("core/*.so")):
            return None
        other = [
            str(file.relative_to(source))
            for file in sorted(source.rglob("*.py"))
            if not (installed / file.relative_to(source)).exists()
            or not filecmp.cmp(file, installed / file.relative_to(source), shallow=False)
        ]
        if other:
            print(
                f"bench: {environment.name} was compiled of other source ({other[0]}, {len(other)} files in all), "
                "and is left out: make compiled-build",
                file=sys.stderr,
            )
            return None
        return str(interpreter)
    return None
