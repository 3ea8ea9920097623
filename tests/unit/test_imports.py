"""How the modules of the package depend on one another, beyond what the contracts in `pyproject.toml` name."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import at run time, those inside functions included."""
    return grimp.build_graph("fencehold", exclude_type_checking_imports=True, cache_dir=None)


def test_no_module_imports_itself_through_others(graph: grimp.ImportGraph) -> None:
    """There is no cycle among the modules, imports inside functions included."""
    imports = {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]), pytrace=False)
