"""Options of the whole test suite, how it runs tests that are coroutines, and how workers share the work."""

import gc
import inspect
import signal
from typing import cast

import pytest

from tests import groups, loops

# A shell in the background, or nohup, turns these off, for children as well; tests send them to both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="rewrite what scripts expect with what the machine says"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        groups.longest_first(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what was collected out of garbage collections: it stays, and is most of what they look through."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return groups.Groups(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own, which a fixture `loop_factory` makes, if it has one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = pyfuncitem.funcargs
    arguments = {name: given[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    loops.run(pyfuncitem.obj(**arguments), cast("loops.LoopFactory | None", given.get("loop_factory")))
    return True
