"""The house keeps its walls: every import against one table of who may know whom."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fjm2.norm

ROOT = Path(__file__).parents[2]
NORM = ROOT / "fjm2" / "norm"
JMS = ROOT / "fjm2" / "jms"

# From the ground up. A module may import from floors below its own, and on its own floor from those before it.
FLOORS: list[list[str]] = [
    [
        "train",
        "quantize",
        "ranges",
        "partition",
        "timers",
        "stats",
        "statistics",
        "backoff",
        "stores",
        "sources",
        "repairset",
    ],
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
    [
        "objects",
        "trains",
        "cache",
        "repair",
        "flushing",
        "incoming",
        "instream",
        "window",
        "ahead",
        "inventory",
        "asking",
    ],
    ["sender", "receiver"],
    ["engine"],
    ["interfaces", "udp_socket", "udp_filter", "udp_opening", "udp"],
    ["driver", "sim_link", "sim_node", "sim", "session"],
]
JMS_FLOORS: list[list[str]] = [
    ["done", "errors", "limits", "types", "values", "selector", "destination", "object_codec"],
    ["header", "properties", "metadata", "settings"],
    ["message", "sequential", "text_message", "bytes_message", "map_message", "stream_message", "object_message"],
    ["foreign", "frame", "message_factory", "tracing"],
    [
        "reports",
        "closing",
        "complaints",
        "callbacks",
        "bus_report",
        "statistics",
        "transactions",
        "presence",
        "router",
        "lane",
        "bus",
        "bus_errors",
    ],
    ["inbox", "local_queue", "dispatcher", "confirmation"],
    ["endpoint", "temporary", "outbox"],
    ["consumer", "producer", "jms_producer", "session"],
    ["connection", "requestor", "context", "factory"],
    ["threads", "blocking"],
]
"""The same for `fjm2.jms`, which uses the public names of `fjm2.norm` only."""
CORE_FLOORS = 6
"""So many floors know neither sockets nor clocks nor threads."""
FORBIDDEN_IN_CORE = {"socket", "time", "asyncio", "threading", "select", "selectors", "uvloop"}
FLOOR_OF = {module: level for level, floor in enumerate(FLOORS) for module in floor}
ORDER_OF = {module: order for order, module in enumerate(module for floor in FLOORS for module in floor)}
JMS_ORDER_OF = {module: order for order, module in enumerate(module for floor in JMS_FLOORS for module in floor)}

PACKAGES = {
    "fjm2.norm": set(),
    "fjm2.record": {"fjm2.norm"},
    "fjm2.jms": {"fjm2.norm", "fjm2.telemetry", "fjm2.uri"},
    "fjm2.doctor": {"fjm2.norm", "fjm2.jms.presence", "fjm2.uri"},
    "fjm2.watch": {"fjm2.norm", "fjm2.record.observed", "fjm2.jms", "fjm2.uri"},
    "fjm2.commands": {"fjm2.doctor", "fjm2.norm", "fjm2.record", "fjm2.jms", "fjm2.uri", "fjm2.watch"},
    "fjm2admin": {"fjm2.programs"},
    "fjm2bench": {
        "fjm2.norm",
        "fjm2.record",
        "fjm2.jms",
        "fjm2.uri",
        "fjm2.commands.common",
        "fjm2.commands.bus_options",
        "fjm2.commands.imported",
        "fjm2.programs",
    },
    "fjm2d": {"fjm2.norm", "fjm2.jms.presence", "fjm2.programs"},
}
"""What of FJM2 a package may know besides itself and what is shared by all."""
SHARED = {"fjm2.errors", "fjm2.counted", "fjm2.exposition", "fjm2.logs", "fjm2.lacking"}


def imports_of(path: Path, for_types: bool = True) -> Iterator[str]:
    """Absolute names of all modules that a file imports, wherever in it; for types alone only if asked for."""
    package = list(path.relative_to(ROOT).parent.parts)
    if package[0] == "bench":
        package[0] = "fjm2bench"
    for node in nodes_of(ast.parse(path.read_text()), for_types):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def nodes_of(node: ast.AST, for_types: bool) -> Iterator[ast.AST]:
    yield node
    if not for_types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    for child in ast.iter_child_nodes(node):
        yield from nodes_of(child, for_types)


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
    allowed = PACKAGES[package] | {package} | SHARED
    for path in folder.rglob("*.py"):
        for name in imports_of(path):
            if name.split(".")[0] in ("fjm2", "fjm2bench") and name not in ("fjm2", "fjm2.__version__"):
                assert any(name == known or name.startswith(f"{known}.") for known in allowed), f"{path}: {name}"


@pytest.mark.parametrize("folder", ["fjm2d/tunnel", "fjm2d/forwarding"])
def test_the_gateways_core_is_sans_io(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        for name in imports_of(path):
            assert name.split(".")[0] not in FORBIDDEN_IN_CORE, f"{path} imports {name}"
            assert not name.startswith("fjm2d.gateway"), f"{path} imports {name}, which lives above it"


def jms_files() -> list[Path]:
    return sorted(path for path in JMS.rglob("*.py") if path != JMS / "__init__.py")


@pytest.mark.parametrize("path", jms_files(), ids=lambda path: str(path.relative_to(JMS)))
def test_jms_modules_import_from_below_only(path: Path) -> None:
    own = path.relative_to(JMS).parts[0].removesuffix(".py")
    assert own in JMS_ORDER_OF, f"{own} has no floor: add it to JMS_FLOORS where it belongs"
    for name in imports_of(path, for_types=False):
        other = name.split(".")[2] if name.startswith("fjm2.jms.") else own
        if other in JMS_ORDER_OF and other != own:
            assert JMS_ORDER_OF[other] < JMS_ORDER_OF[own], f"{own} imports {other}, which lives above it"


@pytest.mark.parametrize("path", jms_files(), ids=lambda path: str(path.relative_to(JMS)))
def test_jms_uses_public_names_of_norm(path: Path) -> None:
    public = {f"fjm2.norm.{name}" for name in (*fjm2.norm.__all__, "__all__")}
    for name in imports_of(path):
        if name.startswith("fjm2.norm."):
            assert name in public or name.startswith("fjm2.norm.events."), f"{path.name} imports {name}"


@pytest.mark.parametrize("name", ["counted.py", "errors.py", "exposition.py", "logs.py", "uri.py"])
def test_what_is_shared_knows_nothing_of_jms(name: str) -> None:
    assert not any(imported.startswith("fjm2.jms") for imported in imports_of(ROOT / "fjm2" / name))
