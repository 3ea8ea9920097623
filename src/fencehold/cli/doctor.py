"""`fencehold doctor`: is this machine, and the server it reaches, fit for the work? What to do where not."""

from pathlib import Path
from typing import Annotated

import typer

from fencehold.cli.checks import DATA, all_findings
from fencehold.cli.exits import Exit
from fencehold.cli.findings import Finding
from fencehold.cli.options import URL, Json, Url
from fencehold.cli.output import clean, console, say, say_json, to_person

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "bold red")}


def doctor(
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="FENCEHOLD_DATA",
            help="The server's data directory, whose disk is tried.",
            show_default=f"{DATA}; none if nodes share an engine",
        ),
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Check the server, or the nodes, the clock, the disk and what is installed. Exits 1 if something fails."""
    findings = []
    for finding in all_findings(url, data):
        findings.append(finding)
        if not as_json:
            _show(finding)
    worst = "fail" if any(found.level == "fail" for found in findings) else "ok"
    if as_json:
        say_json({"result": worst, "checks": [found._asdict() for found in findings]})
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
    out.print(clean(found.said))
    if found.advice:
        out.print(f"  {'':<12}→ {clean(found.advice)}", style=style)
