"""How the modules of the package depend on one another, beyond what the contracts in `pyproject.toml` name."""

import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest

_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import at run time, those inside functions included."""
    return grimp.build_graph("fencehold", exclude_type_checking_imports=True, cache_dir=None)


def contracts() -> dict[str, dict[str, Any]]:
    """What `lint-imports` checks, by name."""
    settings = tomllib.loads(_PYPROJECT.read_text())["tool"]["importlinter"]
    return {contract["name"]: contract for contract in settings["contracts"]}


def layered(contract: dict[str, Any]) -> set[str]:
    """The modules that a contract of layers puts in order."""
    return {module.strip() for layer in contract["layers"] for module in layer.split("|")}


def test_no_module_imports_itself_through_others(graph: grimp.ImportGraph) -> None:
    """There is no cycle among the modules, imports inside functions included."""
    imports = {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]), pytrace=False)


def test_every_package_has_a_layer(graph: grimp.ImportGraph) -> None:
    """Every package is in the layers of the server, or of what applications import."""
    server = layered(contracts()["Arrows point down, in the server"])
    applications = layered(contracts()["Arrows point down, in what applications import"])
    assert graph.find_children("fencehold") == server | applications


def test_the_sdk_may_import_no_package_of_the_server(graph: grimp.ImportGraph) -> None:
    """Every package that is not among what applications import is forbidden to the SDK."""
    applications = layered(contracts()["Arrows point down, in what applications import"])
    forbidden = set(contracts()["The SDK knows the wire protocol, not the server"]["forbidden_modules"])
    assert graph.find_children("fencehold") - applications <= forbidden
