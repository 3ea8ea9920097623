"""Which backend a URL means. Each is imported when it is first needed, and so is its driver."""

from importlib import import_module
from typing import cast

from fencehold.backends.port import Backend, Settings
from fencehold.drivers.address import scheme_in
from fencehold.errors import Unsupported

_MODULES = {
    "etcd": "etcd",
    "etcds": "etcd",
    "mariadb": "mysql",
    "mysql": "mysql",
    "postgres": "postgres",
    "postgresql": "postgres",
    "postgresql+advisory": "advisory",
    "redis": "redis",
    "redis+sentinel": "redis",
    "rediss": "redis",
    "rediss+sentinel": "redis",
    "redlock": "redlock",
    "redlocks": "redlock",
    "sqlite": "sqlite",
    "valkey": "redis",
    "valkeys": "redis",
    "zk": "zookeeper",
    "zks": "zookeeper",
    "zookeeper": "zookeeper",
    "zookeepers": "zookeeper",
}
_EXTRAS = {"advisory": "postgres", "redlock": "redis"}
"""The extra that brings the driver, if its name differs from the module's."""
_PACKAGES = {"google": "protobuf"}
"""The name of a package, if it differs from its modules'."""

SCHEMES = tuple(sorted(_MODULES))


def scheme_of(url: str) -> str:
    """The scheme, if it is a backend's; else empty."""
    scheme = scheme_in(url)
    return scheme if scheme in _MODULES else ""


def backend_of(url: str, settings: Settings) -> Backend:
    """The backend at a URL. Nothing is connected to yet.

    Raises:
        UsageError: the URL makes no sense; the message says what to write instead.
        Unsupported: the driver is not installed; the message says how to install it.
    """
    module = _MODULES[scheme_of(url)]
    try:
        made = import_module(f"fencehold.backends.{module}").backend(url, settings)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("fencehold"):
            raise
        top = error.name.partition(".")[0]
        extra, package = _EXTRAS.get(module, module), _PACKAGES.get(top, top)
        raise Unsupported(
            f"{scheme_in(url)}:// needs the package {package!r}: pip install 'fencehold[{extra}]'"
        ) from error
    return cast(Backend, made)
