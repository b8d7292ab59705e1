"""Tests of the rules in CONTRIBUTING.md and docs/dev/writing.md on sizes, private names and the form of comments."""

import ast
import configparser
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from syntax import nodes_of, text_of

pytestmark = pytest.mark.usefixtures("keeping_trees")

ROOT = Path(__file__).parents[2]
SOURCES = ("fjm2", "fjm2d", "fjm2admin", "bench")
EVERYTHING = (*SOURCES, "tests", "examples", "docs")
FOLDER_MODULES_MAX = 20
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
CLASS_METHODS_MAX = 30
CLASS_ATTRIBUTES_MAX = 15
EXCEPTIONS: dict[str, str] = {
    entry["class"]: entry["reason"]
    for entry in tomllib.loads((ROOT / "docs/dev/house.toml").read_text()).get("exception", [])
}
"""Classes that may exceed the limits, with the reason."""
_OPENING = re.compile(r"(What|Whether|Who|Whom|Whose|Of|So many|So long|Likewise)\b")
_COMMENT_OPENING = re.compile(rf"#[#: ]*{_OPENING.pattern}")
_SENTENCE_END = re.compile(r"[.!?:;](?=\s|$)")


@cache
def files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def classes(*folders: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield every class in these folders with its full name."""
    for path in files(*folders):
        module = name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                yield f"{module}.{node.name}", node


def methods_of(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]


def attributes_of(node: ast.ClassDef) -> set[str]:
    """Return the names that methods assign on `self`, and those in `__slots__`."""
    names = {
        item.attr
        for method in methods_of(node)
        for item in ast.walk(method)
        if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store) and is_self(item.value)
    }
    for item in node.body:
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "__slots__":
            slots = ast.literal_eval(item.value)
            names |= {slots} if isinstance(slots, str) else set(slots)
    return names


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def test_every_folder_with_modules_is_packaged() -> None:
    """A wheel has only the packages that setup.cfg lists. A missing one shows up in no other test but of the wheel."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    folders = {name_of(path.parent).replace("/", ".") for path in files(*SOURCES)}
    packages = {re.sub(r"^bench\b", "fjm2bench", folder) for folder in folders}
    assert set(settings["options"]["packages"].split()) == packages


def test_folders_are_small() -> None:
    counts: dict[Path, int] = {}
    for path in files(*EVERYTHING):
        counts[path.parent] = counts.get(path.parent, 0) + 1
    large = {name_of(folder): count for folder, count in counts.items() if count > FOLDER_MODULES_MAX}
    assert large == {}, (
        f"more than {FOLDER_MODULES_MAX} modules in a folder: make a subfolder of those that belong together"
    )


def test_files_are_short() -> None:
    lengths = {name_of(path): len(text_of(path).splitlines()) for path in files(*EVERYTHING)}
    long = {name: length for name, length in lengths.items() if length > FILE_LINES_MAX}
    assert long == {}, f"more than {FILE_LINES_MAX} lines in a file: split it by what changes together"


def test_functions_are_short() -> None:
    lengths = {
        f"{name_of(path)}: {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in files(*EVERYTHING)
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    long = {name: length for name, length in lengths.items() if length > FUNCTION_LINES_MAX}
    assert long == {}, f"more than {FUNCTION_LINES_MAX} lines in a function: move a part of it into one of its own"


def test_classes_are_small() -> None:
    sizes = {
        name: (len({method.name for method in methods_of(node)}), len(attributes_of(node)))
        for name, node in classes(*SOURCES, "tests")
    }
    large = {
        name: f"{methods} methods, {attributes} attributes"
        for name, (methods, attributes) in sizes.items()
        if methods > CLASS_METHODS_MAX or attributes > CLASS_ATTRIBUTES_MAX
    }
    limits = f"{CLASS_METHODS_MAX} methods or {CLASS_ATTRIBUTES_MAX} attributes"
    found = {name: size for name, size in large.items() if name not in EXCEPTIONS}
    assert found == {}, f"more than {limits} in a class: split it, or add it to docs/dev/house.toml with a reason"
    assert set(EXCEPTIONS) - set(large) == set(), "these exceptions are no longer needed: remove them"


def test_private_names_of_others_are_not_used() -> None:
    used = [use for path in files(*SOURCES, "examples") for use in private_names_used(path)]
    assert used == [], "private names of another class: use its public ones, make the name public, or move the code"


def private_names_used(path: Path) -> list[str]:
    """Return the uses, in a file, of private names that the file's own classes and functions do not define."""
    nodes = nodes_of(path)
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {
        item.target.id
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and is_self(node.value)}
    own |= {value for node in nodes if isinstance(node, ast.Constant) and isinstance(value := node.value, str)}
    used = {
        f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
        for node in nodes
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own
    }
    used |= {
        f"{name_of(path)}:{node.lineno}: import of {alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if is_private(alias.name)
    }
    return sorted(used)


NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
"""Public methods of named tuples. They begin with an underscore so as not to collide with names of fields."""
PYSPARK = {"_accumulatorServer", "_gateway", "_jsc"}
"""Private names of PySpark, which are the only way from Python to Spark's virtual machine."""

OS = {"_exit"}
"""Public function of the module os that begins with an underscore."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE | PYSPARK | OS


def test_docstrings_and_comments_open_with_a_noun_or_a_verb() -> None:
    found = [
        f"{name_of(path)}:{line}: {text[:70]}"
        for path in files(*EVERYTHING)
        for line, text in sentences(path)
        if is_clumsy(text)
    ]
    assert found == [], "see docs/dev/writing.md"


def is_clumsy(text: str) -> bool:
    """Return True if the opening of a text reads as if it were translated. Questions may begin with any word."""
    match = _SENTENCE_END.search(text)
    return _OPENING.match(text) is not None and (match is None or match[0] != "?")


def test_clumsy_openings_are_found() -> None:
    assert is_clumsy("Whether it is open.")
    assert is_clumsy("Of the caller's.")
    assert not is_clumsy("What is a train?")
    assert not is_clumsy("True while it is open.")


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the first paragraph of every docstring in a file, with its line number. Yield every comment as well, if
    some may open in a clumsy way."""
    for node in nodes_of(path):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(ast.Constant(str(docstring))):
                    yield statement.lineno, " ".join(docstring.split("\n\n")[0].split())
    if _COMMENT_OPENING.search(text_of(path)) is None:
        return  # no comment opens so, and to look for comments takes longer than everything else
    previous_line = -1
    for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
        if token.type == tokenize.COMMENT:
            is_alone = token.line.lstrip().startswith("#")
            if not (is_alone and previous_line == token.start[0] - 1):
                yield token.start[0], token.string.lstrip("#: ")
            if is_alone:
                previous_line = token.start[0]
