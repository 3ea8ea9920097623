"""Options of the whole test suite."""

import os
import signal

import pytest

# As `fencehold.etcd` sets it; tests may import gRPC first.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background without it; tests interrupt themselves and their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="rewrite what scripts expect with what the machine says"
    )
