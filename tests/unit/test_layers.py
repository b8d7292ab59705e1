"""Tests of every import of the repository against the table of layers in docs/dev/house.toml.

`make map`, or `python tests/unit/test_layers.py`, writes the table into docs/dev/map.md.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from syntax import nodes_of

pytestmark = pytest.mark.usefixtures("keeping_trees")

ROOT = Path(__file__).parents[2]
HOUSE = tomllib.loads((ROOT / "docs/dev/house.toml").read_text())
LAYERS: dict[str, dict[str, object]] = {layer["name"]: layer for layer in HOUSE["layer"]}
FOLDERS = {"fjm2": "fjm2", "fjm2d": "fjm2d", "fjm2admin": "fjm2admin", "bench": "fjm2bench"}
"""Top-level folders, with the names of the packages in them."""
IO_MODULES = {"asyncio", "select", "selectors", "socket", "threading", "time", "uvloop"}


@cache
def modules() -> dict[str, Path]:
    """Return the paths of all modules of the repository, by their full names."""
    found = {}
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = [package, *path.relative_to(ROOT / folder).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def module_of(name: str) -> str | None:
    """Return the module of the repository that a dotted name is, or that it belongs to.

    Return None if there is none.
    """
    while name:
        if name in modules():
            return name
        name = name.rpartition(".")[0]
    return None


def layer_of(module: str) -> str:
    """Return the layer of a module: the layer with the longest name that is a prefix of the module's name."""
    name = module
    while name not in LAYERS:
        name, dot, _ = name.rpartition(".")
        assert dot, f"{module} is in no layer: add one to docs/dev/house.toml"
    return name


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return the full names that a module imports: at its top, within functions, for type checking, and as strings."""
    path = modules()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return frozenset(_imported_names(nodes_of(path), package.split(".")))


def _imported_names(nodes: Iterable[ast.AST], package: list[str]) -> Iterator[str]:
    loggers = {id(name) for name in _logger_names(nodes)}
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and id(node) not in loggers and _is_module_name(node.value):
            yield str(node.value)


def _is_module_name(value: object) -> bool:
    """Return True if a string is the name of a module. A bare "fjm2" is mostly the name of the project."""
    return isinstance(value, str) and "." in value and value in modules()


def _logger_names(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Yield the expressions that name loggers. Such names look like those of modules, but import nothing."""
    for node in nodes:
        match node:
            case ast.Call(ast.Name("Log") | ast.Attribute(ast.Name("logging"), "getLogger")):
                yield from node.args


def project_imports(module: str) -> set[str]:
    """Return the modules of the repository that a module imports."""
    found = {module_of(name) for name in imports_of(module)}
    return {name for name in found if name is not None and name != module}


def test_the_table_has_no_cycles() -> None:
    known: set[str] = set()
    for name, layer in LAYERS.items():
        unknown = set(layer["may_import"]) - known
        assert not unknown, f"{name} names layers that come after it, or that do not exist: {sorted(unknown)}"
        known.add(name)


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_import_only_what_the_table_allows(layer: str) -> None:
    allowed = {layer, *LAYERS[layer]["may_import"]}
    members = [module for module in modules() if layer_of(module) == layer]
    assert members, f"{layer} has no modules: remove it from docs/dev/house.toml"
    for module in members:
        for other in project_imports(module):
            assert layer_of(other) in allowed, f"{module} imports {other}: {layer} may not import {layer_of(other)}"


@pytest.mark.parametrize("layer", [name for name, layer in LAYERS.items() if layer.get("sans_io")])
def test_sans_io_layers_import_no_io(layer: str) -> None:
    for module in modules():
        if layer_of(module) == layer:
            found = {name.split(".")[0] for name in imports_of(module)} & IO_MODULES
            assert not found, f"{module} imports {sorted(found)}: the layer is sans I/O"


@pytest.mark.parametrize("layer", LAYERS)
def test_the_table_allows_nothing_that_is_not_used(layer: str) -> None:
    used = {layer_of(other) for module in modules() if layer_of(module) == layer for other in project_imports(module)}
    unused = set(LAYERS[layer]["may_import"]) - used
    assert not unused, f"{layer} does not import {sorted(unused)}: remove them from may_import"


def test_no_modules_import_each_other() -> None:
    cycles = list(import_cycles({module: project_imports(module) for module in modules()}))
    assert not cycles, "\n".join(" <-> ".join(sorted(cycle)) for cycle in cycles)


def import_cycles(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """Yield the sets of modules that import each other, directly or through others."""
    reachable = {module: _reachable_from(module, graph) for module in graph}
    seen: set[str] = set()
    for module in graph:
        if module in reachable[module] and module not in seen:
            cycle = {other for other in reachable[module] if module in reachable[other]}
            seen |= cycle
            yield cycle


def _reachable_from(module: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[module])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(graph[name])
    return found


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert list(import_cycles(graph)) == [{"a", "b", "c"}]


# The map.

MAP = ROOT / "docs" / "dev" / "map.md"
_MARKS = "<!-- {}: begin (make map) -->\n", "<!-- {}: end -->"


def table() -> str:
    """Return the table of layers in Markdown, with the lowest layer last."""
    rows = ["| layer | holds | may import |", "| --- | --- | --- |"]
    for name, layer in reversed(LAYERS.items()):
        mark = " (sans I/O)" if layer.get("sans_io") else ""
        below = ", ".join(f"`{other}`" for other in layer["may_import"]) or "nothing of FJM2"
        rows.append(f"| `{name}`{mark} | {layer['purpose']} | {below} |")
    return "\n".join(rows) + "\n"


def large_classes() -> str:
    """Return the table, in Markdown, of classes that may exceed the limits on size."""
    rows = [f"| `{entry['class']}` | {entry['reason']} |" for entry in HOUSE["exception"]]
    return "\n".join(["| class | reason |", "| --- | --- |", *rows]) + "\n"


def with_tables(text: str) -> str:
    """Return the text of the map, with the present tables between their markers."""
    for name, content in (("layers", table()), ("classes", large_classes())):
        begin, end = (mark.format(name) for mark in _MARKS)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{content}{end}{after}"
    return text


def test_the_map_shows_the_tables() -> None:
    text = MAP.read_text()
    assert text.count(": begin (make map) -->") == 2
    assert text == with_tables(text), "docs/dev/map.md does not show the present tables: run `make map`"


if __name__ == "__main__":
    MAP.write_text(with_tables(MAP.read_text()))
