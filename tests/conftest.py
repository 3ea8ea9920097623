"""Options of the whole test suite."""

import os

import pytest

# As `fencehold.etcd` sets it; tests may import gRPC first.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="rewrite what scripts expect with what the machine says"
    )
