"""Signatures of the SDK as they stand in its source, both flavours in one text."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from types import ModuleType
from typing import NamedTuple

import fencehold
from fencehold.client import options
from fencehold.client.aio import client as aio_client
from fencehold.client.aio import election as aio_election
from fencehold.client.aio import hold as aio_hold
from fencehold.client.aio import lock as aio_lock
from fencehold.client.aio import recipes as aio_recipes
from fencehold.client.aio import watch as aio_watch
from fencehold.client.blocking import client, election, hold, lock, recipes, watch
from fencehold.locks.terms import Terms
from fencehold.locks.trust import State
from fencehold.types import Tier

WIDTH = 112

PAIRS: dict[str, tuple[type, type]] = {
    "Client": (client.Client, aio_client.Client),
    "Lock": (lock.Lock, aio_lock.Lock),
    "Hold": (hold.Hold, aio_hold.Hold),
    "Claim": (hold.Claim, aio_hold.Claim),
    "Loss": (hold.Loss, aio_hold.Loss),
    "RWLock": (recipes.RWLock, aio_recipes.RWLock),
    "RLock": (recipes.RLock, aio_recipes.RLock),
    "Election": (election.Election, aio_election.Election),
    "Leadership": (election.Leadership, aio_election.Leadership),
    "Watch": (watch.Watch, aio_watch.Watch),
}
"""The classes with a blocking and an async flavour."""
PAST = ("History", "PastHold", "PastWait", "Remark")
RECORDS: dict[str, type] = {
    name: getattr(fencehold, name)
    for name in ("Explanation", "Kept", "Holder", "Waiting", "Party", "Event", "Guarantees", *PAST)
}
CHOICES: dict[str, type[Enum]] = {"State": State, "Tier": Tier}


class Signature(NamedTuple):
    """One public member, or function."""

    name: str
    parameters: tuple[str, ...]
    """As they are written; empty for what is not called."""
    result: str
    is_called: bool
    is_async: bool

    def __str__(self) -> str:
        if not self.is_called:
            return f"{self.name}: {self.result}"
        return f"{self.name}({', '.join(self.parameters)}) -> {self.result}"


def text_of(name: str, hidden: set[str]) -> str:
    """The block of signatures for a class, a record or `connect`."""
    if name == "connect":
        return "\n".join(_both(_function(client, name), _function(aio_client, name))) + "\n"
    if name in CHOICES:
        return "".join(f"{name}.{choice.name}\n" for choice in CHOICES[name])
    if name in RECORDS:
        return "".join(f"{member}\n" for member in members(RECORDS[name]))
    ours, theirs = ({m.name: m for m in members(kind)} for kind in PAIRS[name])
    names = [each for each in dict.fromkeys([*ours, *theirs]) if f"{name}.{each}" not in hidden]
    return "".join(line + "\n" for each in names for line in _both(ours.get(each), theirs.get(each)))


def members(kind: type) -> list[Signature]:
    """The public members of a class and of what it is made of, in the order of the source."""
    ours = [each for each in kind.__mro__ if each.__module__.startswith("fencehold.")]
    if any(issubclass(kind, hold) and kind is not hold for hold in PAIRS["Hold"]):
        # A hold with one more word: the others are on the page of holds.
        ours = [kind]
    return list({member.name: member for each in reversed(ours) for member in _own_members(each)}.values())


def _own_members(kind: type) -> list[Signature]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found = list(_members(tree))
    # What is set in the constructor and not hidden is read by applications.
    constructor = next((node for node in tree.body if getattr(node, "name", "") == "__init__"), None)
    if isinstance(constructor, ast.FunctionDef):
        found += [field for field in _attributes(constructor) if field.name not in {each.name for each in found}]
    return found


def _members(tree: ast.ClassDef) -> Iterator[Signature]:
    results: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            found = _signature(node)
            if any(ast.unparse(mark) == "overload" for mark in node.decorator_list):
                results.setdefault(node.name, []).append(found.result)
            else:
                # What it can be called with is said once, and all that can come of it.
                said = " | ".join(results.get(node.name, [found.result]))
                yield found._replace(result=" | ".join(dict.fromkeys(said.split(" | "))))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield Signature(node.target.id, (), _words(node.annotation), False, False)


def _attributes(constructor: ast.FunctionDef) -> Iterator[Signature]:
    types = {argument.arg: argument.annotation for argument in constructor.args.args}
    for node in ast.walk(constructor):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                name = target.attr if isinstance(target, ast.Attribute) and _words(target.value) == "self" else "_"
                if not name.startswith("_"):
                    yield Signature(name, (), _words(types.get(name)) or "str", False, False)


def _function(module: ModuleType, name: str) -> Signature:
    (tree,) = ast.parse(inspect.getsource(getattr(module, name))).body
    assert isinstance(tree, ast.FunctionDef)
    return _signature(tree)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    is_property = any(ast.unparse(mark) == "property" for mark in node.decorator_list)
    words = _words(node.args).removeprefix("self").removeprefix(", ")
    parameters = tuple(_unpacked(list(_split(words))))
    yields = any(isinstance(inner, ast.Yield) for inner in ast.walk(node))
    is_async = isinstance(node, ast.AsyncFunctionDef) and not yields
    return Signature(node.name, parameters, _words(node.returns), not is_property, is_async)


def _unpacked(parameters: list[str]) -> Iterator[str]:
    """Parameters; options that are declared elsewhere one by one, with what each is when it is not said."""
    *others, last = parameters or [""]
    declared = re.fullmatch(r"\*\*options: Unpack\[(\w+)\]", last)
    if declared is None:
        yield from parameters
        return
    defaults = dict(each.partition(" = ")[::2] for each in _constructor_of_terms())
    for each in others:
        yield each
        if each == "*":
            yield from (f"{option} = {defaults.get(option)}" for option in _options(declared[1]))


def _options(name: str) -> Iterator[str]:
    """What a typed dictionary declares, and those it adds to: at run time it has forgotten them."""
    tree = ast.parse(inspect.getsource(options))
    kind = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    for base in kind.bases:
        if _words(base) != "TypedDict":
            yield from _options(_words(base))
    yield from (f"{field.name}: {field.result}" for field in _members(kind))


def _constructor_of_terms() -> tuple[str, ...]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(Terms.__init__))).body
    assert isinstance(tree, ast.FunctionDef)
    return _signature(tree).parameters


def _words(node: ast.AST | None) -> str:
    if node is None:
        return ""
    text = re.sub(r"\b(views|ssl|asyncio|os)\.", "", ast.unparse(node))
    return re.sub(r"(?<=: )'(\w+)'|^'(\w+)'$", r"\1\2", text)


def _split(words: str) -> Iterator[str]:
    """Parameters apart; a comma inside brackets parts none."""
    depth, begun = 0, 0
    for at, char in enumerate(words):
        depth += (char in "[(") - (char in "])")
        if char == "," and depth == 0:
            yield _spaced(words[begun:at])
            begun = at + 1
    if words[begun:].strip():
        yield _spaced(words[begun:])


def _spaced(parameter: str) -> str:
    return re.sub(r"^(\w+: [^=]+)=", r"\1 = ", parameter.strip())


def _both(blocking: Signature | None, other: Signature | None) -> list[str]:
    """The lines for a member: the blocking signature, and what is different on an event loop."""
    if blocking is None:
        assert other is not None
        return _wrapped(str(other), f"  # aio only{', await' if other.is_async else ''}")
    if other is None:
        return _wrapped(str(blocking), "  # not in aio")
    mark = "  # aio: await" if other.is_async else ""
    more = [parameter for parameter in other.parameters if parameter not in blocking.parameters]
    # Where they stand among the others does not matter: options are keyword-only.
    is_more = {*blocking.parameters, *more} == set(other.parameters) and blocking.result == other.result
    if more and is_more:
        return [*_wrapped(str(blocking), mark), f"    # aio, also: {', '.join(more)}"]
    if blocking.parameters == other.parameters and blocking.result != other.result:
        mark = f"  # aio: {'await ' if other.is_async else ''}-> {other.result}"
    elif str(blocking) != str(other):
        mark = f"  # aio: {'await ' if other.is_async else ''}{other}"
    return _wrapped(str(blocking), mark)


def _wrapped(text: str, mark: str) -> list[str]:
    if len(text + mark) <= WIDTH:
        return [text + mark]
    # Between parameters, not within them.
    whole = re.sub(r"(?<!,) ", "\xa0", re.sub(r"\[[^\[]*?\]", lambda found: found[0].replace(" ", "\xa0"), text))
    lines = [line.replace("\xa0", " ") for line in _filled(whole)]
    return [*lines[:-1], lines[-1] + mark] if len(lines[-1] + mark) <= WIDTH else [*lines, "    " + mark.strip()]


def _filled(text: str) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) >= WIDTH:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines
