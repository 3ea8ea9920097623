"""The grounds: one for each kind of URL, each with real servers where it talks to any."""

from importlib import import_module

from tests.behaviour.ground import Ground

NAMES = (
    "fencehold",
    "volatile",
    "memory",
    "redis",
    "redlock",
    "zookeeper",
    "etcd",
    "postgres",
    "advisory",
    "mysql",
    "sqlite",
)


def ground_of(name: str) -> Ground:
    """The ground of that name, not started yet."""
    ground = import_module(f"tests.behaviour.grounds.{name}").GROUND()
    assert isinstance(ground, Ground)
    return ground
