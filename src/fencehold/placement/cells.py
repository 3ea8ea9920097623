"""The map of name prefixes to cells: a value with a version. A *cell* is a whole service, mostly a region's.

1. Every name has one home: that of the longest prefix it begins with. The empty prefix is in every map, so no name
   is without one.
2. A map is replaced by one with a greater version, and by no other: what comes late is not believed.
3. The map says where to ask. Which cell grants is decided in each cell by what was opened there (`core.cells`):
   two cells with different maps redirect clients in circles at worst, and never both grant a name.
4. A prefix has a survival goal: `none`, `zone` or `region`, what may be lost without losing the names for longer
   than a failover, or, of a region, than an operator takes to promote another cell. A cell says what the members
   of its engine are spread over. What that cannot survive is refused when a map is planned.
5. A home with the goal `region` whose engine is in one region is *leased*: it grants only while another cell has
   confirmed it within `lease_ms` (`node.cell_keeper`), if there is one that is not marked as lost. So it grants
   nothing any more when another is promoted.
"""

from collections.abc import Iterable
from enum import Enum
from functools import cached_property

from msgspec import Struct
from msgspec.json import Encoder
from msgspec.structs import replace

CELLS_MAX = 32
PREFIXES_MAX = 512
ADDRESSES_MAX = 16
TEXT_BYTES_MAX = 256
"""Of a prefix, the name of a cell, an address."""
MAP_BYTES_MAX = 48 << 10
"""Of a map as JSON: it travels in one command."""
LEASE_MS_MIN, LEASE_MS_MAX = 1_000, 600_000

_encode = Encoder().encode


class Reach(Enum):
    """How much may be lost: of a prefix, its goal; of a cell, what its engine survives by being spread out."""

    NONE = "none"
    ZONE = "zone"
    REGION = "region"

    @property
    def rank(self) -> int:
        return list(Reach).index(self)


class Cell(Struct, frozen=True, gc=False):
    """A whole service: its name, where clients reach its nodes, and what its engine is spread over."""

    name: str
    addresses: tuple[str, ...]
    spans: Reach = Reach.NONE
    out: bool = False
    """An operator marked it as lost or switched off: its confirmation is not waited for."""


class PrefixHome(Struct, frozen=True, gc=False):
    """The home of all names that begin with a prefix, and with no longer one of the map."""

    prefix: str
    cell: str
    goal: Reach = Reach.NONE


class CellMap(Struct, frozen=True, dict=True):
    """Which cell every name is at home in."""

    version: int
    cells: tuple[Cell, ...]
    homes: tuple[PrefixHome, ...]
    lease_ms: int = 0
    """For how long a leased home may grant after another cell has confirmed it; 0: nothing is leased."""
    wait_ms: int = 0
    """The longest lease that any version of it had: a cell that was cut off may know only that one."""

    @cached_property
    def by_name(self) -> dict[str, Cell]:
        """The cells."""
        return {cell.name: cell for cell in self.cells}

    @cached_property
    def by_prefix(self) -> dict[str, PrefixHome]:
        """The homes."""
        return {home.prefix: home for home in self.homes}

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How long its prefixes are, the longest first."""
        return lengths_of(self.by_prefix)

    def home_of(self, name: str) -> PrefixHome:
        """The home of a name."""
        prefixes = self.by_prefix
        return next(prefixes[name[:size]] for size in self.lengths if name[:size] in prefixes)

    def homes_under(self, prefix: str) -> list[PrefixHome]:
        """All homes that names with a prefix may have."""
        return [self.home_of(prefix), *(each for each in self.homes if each.prefix.startswith(prefix))]

    def is_leased(self, prefix: str) -> bool:
        """Whether its home may grant only while another cell confirms it."""
        home = self.by_prefix.get(prefix)
        if home is None or not self.lease_ms or home.goal is not Reach.REGION:
            return False
        has_others = any(cell.name != home.cell and not cell.out for cell in self.cells)
        return has_others and self.by_name[home.cell].spans is not Reach.REGION

    def newest(self, other: "CellMap") -> "CellMap":
        """The newer one of two."""
        return other if other.version > self.version else self

    def moved(self, prefix: str, cell: str, version: int) -> "CellMap":
        """The map of a version, in which a prefix has another home; one that it did not have is added."""
        goal = self.by_prefix[prefix].goal if prefix in self.by_prefix else self.home_of(prefix).goal
        homes = {**self.by_prefix, prefix: PrefixHome(prefix, cell, goal)}
        return replace(self, version=version, homes=in_order(homes.values()))

    def problem(self) -> str:
        """What is wrong with it whatever the cells are like; empty if nothing is."""
        return (
            _wrong_texts(self)
            or _wrong_names([cell.name for cell in self.cells], "cell", CELLS_MAX)
            or _wrong_names([home.prefix for home in self.homes], "prefix", PREFIXES_MAX)
            or _wrong_homes(self)
            or _wrong_lease(self)
        )

    def unmet(self) -> list[str]:
        """Goals that cannot be reached with what the cells are spread over, and what would help."""
        return [said for home in self.homes if (said := _unmet(self, home))]


def in_order(homes: Iterable[PrefixHome]) -> tuple[PrefixHome, ...]:
    """Homes as a map has them: two maps that say the same are equal."""
    return tuple(sorted(homes, key=lambda home: home.prefix))


def lengths_of(prefixes: Iterable[str]) -> tuple[int, ...]:
    """How long prefixes are, the longest first."""
    return tuple(sorted({len(prefix) for prefix in prefixes}, reverse=True))


def _wrong_texts(placed: CellMap) -> str:
    texts = [home.prefix for home in placed.homes]
    for cell in placed.cells:
        texts += (cell.name, *cell.addresses)
        if not cell.name or not cell.name.replace("-", "").replace("_", "").isalnum():
            return f"the name of a cell has letters, digits, - and _ only, not {cell.name!r}"
        if not 1 <= len(cell.addresses) <= ADDRESSES_MAX:
            return f"cell {cell.name!r} has 1 to {ADDRESSES_MAX} addresses, not {len(cell.addresses)}"
        if any(" " in each or "," in each or not each for each in cell.addresses):
            return f"an address of cell {cell.name!r} is host:port"
    if any(len(text.encode()) > TEXT_BYTES_MAX for text in texts):
        return f"prefixes, names of cells and addresses have at most {TEXT_BYTES_MAX} bytes each"
    if len(_encode(placed)) > MAP_BYTES_MAX:
        return f"the map is too large: {MAP_BYTES_MAX >> 10} KiB at the most"
    return ""


def _wrong_names(names: list[str], what: str, most: int) -> str:
    if not 1 <= len(names) <= most:
        return f"a map has 1 to {most} of each {what}, not {len(names)}"
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"{what} {twice[0]!r} is in the map twice" if twice else ""


def _wrong_homes(placed: CellMap) -> str:
    if "" not in placed.by_prefix:
        return 'every name needs a home: the prefix "" is missing'
    strays = [home for home in placed.homes if home.cell not in placed.by_name]
    if strays:
        return f"the home of {strays[0].prefix!r} is {strays[0].cell!r}, and there is no such cell"
    return ""


def _wrong_lease(placed: CellMap) -> str:
    if placed.version < 1:
        return "versions of a map begin with 1"
    if placed.lease_ms and not LEASE_MS_MIN <= placed.lease_ms <= LEASE_MS_MAX:
        return f"a lease is {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {placed.lease_ms}"
    if placed.wait_ms < placed.lease_ms:
        return "a promotion waits at least as long as the lease"
    return ""


def _unmet(placed: CellMap, home: PrefixHome) -> str:
    cell, said = placed.by_name[home.cell], f"{home.prefix!r} is to survive the loss of a {home.goal.value}"
    if home.goal.rank <= cell.spans.rank:
        return ""
    if home.goal is Reach.ZONE:
        return f"{said}, and the engine of cell {cell.name!r} is not said to be spread over zones: see --spans"
    if len(placed.cells) < 2 or not placed.lease_ms:
        return (
            f"{said}, and the engine of cell {cell.name!r} is in one region: spread it over regions, or have a "
            "lease and a second cell that can be promoted"
        )
    return ""
