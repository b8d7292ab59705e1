"""The house keeps its walls: every import against one table of who may know whom."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NORM = ROOT / "fjm2" / "norm"

# From the ground up. A module may import from floors below its own, and on its own floor from those before it.
FLOORS: list[list[str]] = [
    ["train", "quantize", "ranges", "partition", "timers", "stats", "backoff", "stores", "sources", "repairset"],
    ["wire", "fec"],
    [
        "config",
        "events",
        "pacing",
        "grtt",
        "nack",
        "idpages",
        "remote",
        "stream",
        "block",
        "acking",
        "congestion",
        "tfmcc",
        "flow",
        "timing",
    ],
    ["objects", "trains", "cache", "repair", "flushing", "incoming", "instream", "window", "ahead", "inventory", "asking"],
    ["sender", "receiver"],
    ["engine"],
    ["interfaces", "udp_socket", "udp_opening", "udp"],
    ["driver", "sim_link", "sim_node", "sim", "session"],
]
CORE_FLOORS = 6
"""So many floors know neither sockets nor clocks nor threads."""
FORBIDDEN_IN_CORE = {"socket", "time", "asyncio", "threading", "select", "selectors", "uvloop"}
FLOOR_OF = {module: level for level, floor in enumerate(FLOORS) for module in floor}
ORDER_OF = {module: order for order, module in enumerate(module for floor in FLOORS for module in floor)}

PACKAGES = {
    "fjm2.norm": set(),
    "fjm2.commands": {"fjm2.norm", "fjm2.uri"},
    "fjm2bench": {"fjm2.norm", "fjm2.uri", "fjm2.commands.common"},
}
"""What of FJM2 a package may know besides itself and `fjm2.errors`."""


def imports_of(path: Path) -> Iterator[str]:
    """Absolute names of all modules that a file imports, wherever in it."""
    package = list(path.relative_to(ROOT).parent.parts)
    if package[0] == "bench":
        package[0] = "fjm2bench"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def norm_module(name: str) -> str | None:
    parts = name.split(".")
    return parts[2] if parts[:2] == ["fjm2", "norm"] and len(parts) > 2 else None


def norm_files() -> list[Path]:
    return sorted(path for path in NORM.rglob("*.py") if path != NORM / "__init__.py")


@pytest.mark.parametrize("path", norm_files(), ids=lambda path: str(path.relative_to(NORM)))
def test_norm_modules_import_from_below_only(path: Path) -> None:
    own = path.relative_to(NORM).parts[0].removesuffix(".py")
    assert own in FLOOR_OF, f"{own} has no floor: add it to FLOORS where it belongs"
    for name in imports_of(path):
        other = norm_module(name)
        if other in FLOOR_OF and other != own:
            assert ORDER_OF[other] < ORDER_OF[own], f"{own} imports {other}, which lives above it"
        if FLOOR_OF[own] < CORE_FLOORS:
            assert name.split(".")[0] not in FORBIDDEN_IN_CORE, f"{own} imports {name}: the core is sans I/O"
        assert not name.startswith("fjm2.jms"), "NORM knows nothing of JMS"


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_packages_know_only_what_is_below_them(package: str) -> None:
    folder = ROOT / package.replace("fjm2bench", "bench").replace(".", "/")
    allowed = PACKAGES[package] | {package, "fjm2.errors"}
    for path in folder.rglob("*.py"):
        for name in imports_of(path):
            if name.split(".")[0] in ("fjm2", "fjm2bench") and name not in ("fjm2", "fjm2.__version__"):
                assert any(name == known or name.startswith(f"{known}.") for known in allowed), f"{path}: {name}"
