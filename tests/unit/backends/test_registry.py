"""Backends by their URLs: whoever lacks a driver is told how to install it."""

import subprocess
import sys

import pytest

# Somebody else's packages are in this process already: what is missing is missing in another.
_WITHOUT = """
import sys
from fencehold.backends.port import Settings
from fencehold.backends.registry import backend_of

sys.modules[sys.argv[2]] = None
try:
    backend_of(sys.argv[1], Settings())
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize(
    ("url", "missing", "package", "extra"),
    [
        ("redlock://a,b,c", "redis", "redis", "redis"),
        ("etcd://a", "google", "protobuf", "etcd"),
        ("etcd://a", "google.protobuf", "protobuf", "etcd"),
    ],
)
def test_a_driver_that_is_not_installed_is_named(url: str, missing: str, package: str, extra: str) -> None:
    """As its package is called, which is not always what its modules are; and with the extra that brings it."""
    command = [sys.executable, "-c", _WITHOUT, url, missing]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    scheme = url.partition(":")[0]
    assert told == f"Unsupported: {scheme}:// needs the package {package!r}: pip install 'fencehold[{extra}]'"
