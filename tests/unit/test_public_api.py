"""Tests that public names and signatures are as listed in `public_api.txt`, so that they change only on purpose.

`make api`, or `python tests/unit/test_public_api.py`, writes this file.
"""

import ast
import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import re
import textwrap
from abc import ABC
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

LISTED = Path(__file__).with_name("public_api.txt")
MODULES = (
    "fjm2",
    "fjm2.app",
    "fjm2.app.blocking",
    "fjm2.doctor",
    "fjm2.errors",
    "fjm2.jms",
    "fjm2.jms.blocking",
    "fjm2.metrics",
    "fjm2.norm",
    "fjm2.norm.events",
    "fjm2.norm.sim",
    "fjm2.record",
    "fjm2.telemetry",
    "fjm2.uri",
    "fjm2.watch",
)
MADE_BY_OTHERS = {
    *("fjm2.jms." + name for name in ("Connection", "ConnectionMetaData", "JMSContext", "Session")),
    *("fjm2.jms." + name for name in ("JMSConsumer", "JMSProducer", "MessageConsumer", "MessageProducer")),
    *("fjm2.jms." + name for name in ("TemporaryQueue", "TemporaryTopic")),
    *("fjm2.jms." + name for name in ("Batch", "Batches", "Properties")),
    "fjm2.doctor.Scene",
    *("fjm2.norm." + name for name in ("IncomingMessages", "OutgoingMessages", "OutgoingStream")),
    "fjm2.norm.events.Marks",
    *("fjm2.norm.sim." + name for name in ("Link", "Node")),
}
MADE_BY_OTHERS |= {name.replace(".jms.", ".jms.blocking.") for name in MADE_BY_OTHERS}
"""Classes whose objects only the library makes. Their constructors are not public."""
ADVICE = """
The public surface is not what tests/unit/public_api.txt says. If that is meant:
`make api`, and a file in docs/changes/ if users notice.
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


# The present surface.


def surface() -> dict[str, list[str]]:
    """Return the lines for all public modules that can be imported. `fjm2.telemetry` needs an optional package."""
    homes: dict[int, str] = {}
    found = {}
    for name in importable():
        module = importlib.import_module(name)
        found[name] = [line for item in sorted(names_of(module)) for line in entry(module, item, homes)]
    return found


def importable() -> list[str]:
    return [name for name in MODULES if name != "fjm2.telemetry" or importlib.util.find_spec("opentelemetry")]


def listed() -> dict[str, list[str]]:
    parts = [part.splitlines() for part in LISTED.read_text().removeprefix("# ").split("\n# ")]
    return {name: [line for line in lines if line] for name, *lines in parts}


def text_of(modules: dict[str, list[str]]) -> str:
    return "\n\n".join("\n".join([f"# {name}", *modules[name]]) for name in sorted(modules)) + "\n"


def names_of(module: ModuleType) -> list[str]:
    return list(module.__all__)


def entry(module: ModuleType, name: str, homes: dict[int, str]) -> list[str]:
    """Return the lines that describe a public name.

    A class that several modules export is described only in the first.
    """
    value = getattr(module, name)
    if inspect.ismodule(value):
        return [f"{name}: module"]
    if inspect.isclass(value):
        home = homes.setdefault(id(value), f"{module.__name__}.{name}")
        if home != f"{module.__name__}.{name}":
            return [f"{name} = {home}"]
        return class_lines(value, name, home)
    if inspect.isroutine(value):
        (function,) = functions_of(value)
        return [f"{name}{signature(function)}"]
    return [f"{name} = {shown(value)}"]


def class_lines(kind: type, name: str, home: str) -> list[str]:
    bases = [told(base, name) for base in bases_of(kind)]
    lines = [f"class {name}{'(' * bool(bases)}{', '.join(bases)}{')' * bool(bases)}{dataclass_note(kind)}"]
    if issubclass(kind, Enum):
        return lines + [f"    {member.name} = {member.value!r}" for member in kind]
    members: dict[str, str] = {}
    for owner in described(kind):
        for member, line in class_members(owner):
            members.setdefault(member, line)
    if home in MADE_BY_OTHERS:
        members.pop("__init__", None)
    places = places_of(kind)
    ordered = sorted(members, key=lambda member: (member != "__init__", places.get(member, len(places)), member))
    return lines + [f"    {members[member]}" for member in ordered]


def places_of(kind: type) -> dict[str, int]:
    """Return the places of names whose order matters, such as fields. Other names are sorted alphabetically."""
    names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    return {name: place for place, name in enumerate(names or getattr(kind, "_fields", []))}


def described(kind: type) -> Iterator[type]:
    """Yield a class and its private bases, which are not described anywhere else."""
    for owner in kind.__mro__:
        if owner is kind or not (is_foreign(owner) or is_public(owner)):
            yield owner


def bases_of(kind: type) -> Iterator[type]:
    """Yield the bases of a class. A private base is replaced by its own bases."""
    for base in kind.__bases__:
        if is_foreign(base) or is_public(base):
            yield from () if base in (object, ABC) else (base,)
        else:
            yield from bases_of(base)


def told(base: type, name: str) -> str:
    return base.__name__ if base.__name__ != name else f"{base.__module__.rpartition('.')[0]}.{name}"


def is_foreign(kind: type) -> bool:
    return not kind.__module__.startswith("fjm2")


def is_public(kind: type) -> bool:
    return any(
        kind.__name__ in names_of(module) and getattr(module, kind.__name__) is kind
        for module in map(importlib.import_module, importable())
    )


def dataclass_note(kind: type) -> str:
    if not dataclasses.is_dataclass(kind):
        return ""
    frozen = ", frozen" * kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    fields = dataclasses.fields(kind)
    return f" dataclass{frozen}" + ", keyword-only" * (bool(fields) and all(field.kw_only for field in fields))


# Members, as written in the source.


def class_members(kind: type) -> Iterator[tuple[str, str]]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    setters = {node.name for node in tree.body if isinstance(node, Function) and "setter" in decorators(node)}
    for node in tree.body:
        if isinstance(node, Function):
            yield from method(node, setters)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from public(node.target.id, unparsed(node))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from assigned(target, node.value)


def method(node: Function, setters: set[str]) -> Iterator[tuple[str, str]]:
    marks = decorators(node)
    if "setter" in marks or "overload" in marks:
        return
    if "property" in marks or "_Stamped" in marks:
        returns = ast.unparse(node.returns) if node.returns else "Any"
        can_be_set = node.name in setters or "_Stamped" in marks
        yield from public(node.name, f"{node.name}: {returns}{'' if can_be_set else '  (read-only)'}")
        return
    kind = "".join(f"{mark} " for mark in ("classmethod", "staticmethod", "contextmanager") if mark in marks)
    kind += "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    yield from public(node.name, f"{kind}{node.name}{signature(node)}")
    if node.name == "__init__":
        yield from attributes(node)


def attributes(node: Function) -> Iterator[tuple[str, str]]:
    """Yield the public attributes that a constructor sets."""
    for inner in ast.walk(node):
        targets = inner.targets if isinstance(inner, ast.Assign) else []
        if isinstance(inner, ast.AnnAssign):
            targets = [inner.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                annotation = f": {ast.unparse(inner.annotation)}" if isinstance(inner, ast.AnnAssign) else ""
                yield from public(target.attr, f"{target.attr}{annotation}")


def assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Name):
        yield from public(target.id, f"{target.id} = {ast.unparse(value)}")
    elif isinstance(target, ast.Tuple):
        for element in target.elts:
            yield from public(ast.unparse(element), ast.unparse(element))


SHOWN = (
    "__init__",
    "__await__",
    "__aenter__",
    "__enter__",
    "__aiter__",
    "__iter__",
    "__call__",
    "__getitem__",
    "__len__",
)


def public(name: str, line: str) -> Iterator[tuple[str, str]]:
    if not name.startswith("_") or name in SHOWN:
        yield name, line


def decorators(node: Function) -> set[str]:
    return {ast.unparse(mark).rpartition(".")[2].partition("(")[0] for mark in node.decorator_list}


def functions_of(function: Callable[..., Any]) -> list[Function]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return [node for node in tree.body if isinstance(node, Function)]


def signature(node: Function) -> str:
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("cls, ")
    arguments = "" if arguments in ("self", "cls") else arguments
    return f"({arguments})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def unparsed(node: ast.AnnAssign) -> str:
    default = f" = {ast.unparse(node.value)}" if node.value is not None else ""
    return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}{default}"


def shown(value: object) -> str:
    return str(value).replace("typing.", "").replace("collections.abc.", "") if callable(value) else repr(value)


# Tests.


def test_the_public_surface_is_as_listed() -> None:
    found = surface()
    before = {name: lines for name, lines in listed().items() if name in importable() or name not in MODULES}
    texts = [text.splitlines() for text in (text_of(before), text_of(found))]
    difference = "\n".join(difflib.unified_diff(*texts, "public_api.txt", "as it is now", lineterm="", n=1))
    if difference:
        pytest.fail(f"{ADVICE}\n{difference}", pytrace=False)


@pytest.mark.parametrize("name", importable())
def test_types_in_signatures_are_public(name: str) -> None:
    module = importlib.import_module(name)
    kinds = [getattr(module, item) for item in names_of(module) if inspect.isclass(getattr(module, item))]
    hidden = {
        f"{kind.__name__}.{member}: {word}"
        for kind in kinds
        for owner in described(kind)
        for member, line in (() if issubclass(kind, Enum) else class_members(owner))
        for word in set(re.findall(r"\w+", line)) - {kind.__name__}
        if is_hidden(getattr(importlib.import_module(owner.__module__), word, None))
        if member != "__init__" or f"{name}.{kind.__name__}" not in MADE_BY_OTHERS
    }
    assert not hidden - UNSEEN


UNSEEN = {"Scene.kernel: Kernel", "Scene.place: Place"}
"""Types that callers need not know: they only pass a scene from `look` on to the doctor."""
REFERENCE = Path(__file__).parents[2] / "docs" / "api" / "index.md"


def test_modules_in_the_reference_are_listed() -> None:
    promised = set(re.findall(r"^\| \[`([\w.]+)`\]", REFERENCE.read_text(), re.MULTILINE))
    assert promised | {"fjm2.errors", "fjm2.uri"} == set(MODULES)


def is_hidden(value: object) -> bool:
    return inspect.isclass(value) and not is_foreign(value) and not is_public(value)


if __name__ == "__main__":
    kept = {name: lines for name, lines in listed().items() if name in MODULES}
    LISTED.write_text(text_of(kept | surface()))
