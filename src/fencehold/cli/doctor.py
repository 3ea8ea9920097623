"""`fencehold doctor`: check this machine and the server it reaches, with advice for each problem."""

from pathlib import Path
from typing import Annotated

import typer

from fencehold.cli.checks import all_findings
from fencehold.cli.exits import Exit
from fencehold.cli.findings import Finding
from fencehold.cli.options import URL, Json, Url
from fencehold.cli.output import clean, console, hanging, say, say_json, to_person

_MARGIN = 14
_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "bold red")}


def doctor(
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="FENCEHOLD_DATA",
            help="Also test the disk of this directory, before a server is started in it.",
            show_default=False,
        ),
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Check the server, its disk or its engine, the nodes, the clock and what is installed. Exits 1 if one fails.

    Its disk and the servers of its engine are checked as the server sees them.
    """
    findings = []
    for finding in all_findings(url, data):
        findings.append(finding)
        if not as_json:
            _show(finding)
    worst = "fail" if any(found.level == "fail" for found in findings) else "ok"
    if as_json:
        checks = [{**found._asdict(), "advice": found.advice or None} for found in findings]
        say_json({"result": worst, "checks": checks})
    if worst == "fail":
        raise typer.Exit(Exit.NO)


def _show(found: Finding) -> None:
    if not to_person():
        say("\t".join((found.level, found.check, clean(found.said), clean(found.advice))))
        return
    mark, style = _MARKS[found.level]
    out = console()
    out.print(f"{mark} ", style=style, end="")
    out.print(f"{found.check:<12}", style="dim", end="")
    out.print(hanging(clean(found.said), _MARGIN))
    if found.advice:
        out.print(" " * (_MARGIN - 2) + hanging(f"→ {clean(found.advice)}", _MARGIN), style=style)
