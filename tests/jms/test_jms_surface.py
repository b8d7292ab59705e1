"""Tests of the surface of both APIs: they have the same members, and factories check their options.

Every number of a case in the first release, such as A1, has a test.
"""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adapter import OPEN_NAMES

from fjm2 import jms
from fjm2.errors import ConfigError
from fjm2.jms import blocking

TESTS = Path(__file__).parents[1]

ROWS = {"A": 10, "B": 13, "C": 16, "E": 2, "G": 3, "H": 17, "M": 4, "N": 9, "O": 4, "P": 11, "R": 2, "S": 22, "X": 8}
"""Number of cases in the first release, by the letter that their numbers begin with."""
MORE_ROWS = ["U1", "U2", "U3", "U4", "U9", "U10"]
LATER = {"H15"}

IN_OTHER_WORDS = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}


def surface(kind: type) -> dict[str, Any]:
    """Return the public members of a class, including its methods for `with`, iteration and `await`."""
    names = [
        name for name in dir(kind) if not name.startswith("_") or name in {*IN_OTHER_WORDS, *IN_OTHER_WORDS.values()}
    ]
    return {IN_OTHER_WORDS.get(name, name): inspect.getattr_static(kind, name) for name in names}


@pytest.mark.parametrize("name", [*OPEN_NAMES, "ConnectionFactory"])
def test_both_apis_have_the_same_members(name: str) -> None:
    theirs, ours = surface(getattr(jms, name)), surface(getattr(blocking, name))
    assert theirs.keys() == ours.keys()
    for member, value in theirs.items():
        if inspect.isfunction(value):
            assert parameters_of(value) == parameters_of(ours[member]), member
        elif isinstance(value, property):
            assert (value.fset is None) == (ours[member].fset is None), member


def parameters_of(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


def test_both_apis_have_the_same_names() -> None:
    assert sorted(blocking.__all__) == sorted(jms.__all__)
    for name in jms.__all__:
        is_shell = name in OPEN_NAMES or name == "ConnectionFactory"
        assert (getattr(blocking, name) is getattr(jms, name)) != is_shell, name


THREADING = {"callback_thread", "loop_thread", "receiver", "send_queue"}
"""Names of modules, below the blocking API, that connect threads with the event loop."""


def test_methods_of_the_blocking_api_are_short() -> None:
    files = [one for one in Path(str(blocking.__file__)).parent.glob("*.py") if one.stem not in THREADING]
    trees = [ast.parse(one.read_text()) for one in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert len(functions) > 100
    for function in functions:
        body = function.body[1:] if ast.get_docstring(function) else function.body
        lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        assert lines <= 5, f"{function.name} at line {function.lineno}: {lines} lines"


def test_every_row_of_the_first_release_has_a_test() -> None:
    rows = {f"{letter}{number}" for letter, count in ROWS.items() for number in range(1, count + 1)}
    rows = (rows | set(MORE_ROWS)) - LATER
    files = [*TESTS.glob("jms/test_*.py"), *TESTS.glob("unit/messages/**/test_*.py"), *TESTS.glob("unit/bus/test_*.py")]
    heads = re.findall(
        r"^(?:async )?def test_((?:[a-z]\d+_)+)", "\n".join(path.read_text() for path in files), re.MULTILINE
    )
    named = {row.upper() for head in heads for row in head.split("_") if row}
    assert named >= rows, f"without a test: {sorted(rows - named)}"


@pytest.mark.parametrize("module", [jms, blocking])
def test_a_factory_takes_a_uri_options_and_the_environment(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FJM2_URI", raising=False)
    assert parts_of(module.ConnectionFactory().uri) == ("fjm2://239.192.57.40:5740", BUS)
    monkeypatch.setenv("FJM2_URI", "")  # as unset, like in the commands
    assert parts_of(module.ConnectionFactory().uri) == ("fjm2://239.192.57.40:5740", BUS)
    monkeypatch.setenv("FJM2_URI", "fjm2://239.1.2.3:6000")
    assert parts_of(module.ConnectionFactory().uri) == ("fjm2://239.1.2.3:6000", BUS)
    factory = module.ConnectionFactory("fjm2://239.9.9.9?ttl=4&rate=10mbit", ttl=0, loopback=False, messages_max=5)
    own = {"ttl=0", "loopback=off", "rate=10000000.0"}
    assert parts_of(factory.uri) == ("fjm2://239.9.9.9:5740", BUS - {"rate=none"} | own)
    factory = module.ConnectionFactory("fjm2://?rate_bps=1mbit&sync=stream", flow="max")
    assert parts_of(factory.uri)[1] == {"rate=1000000.0"}
    with pytest.raises(ConfigError, match="twice"):
        module.ConnectionFactory("fjm2://?ttl=1&ttl=2")


BUS = {"flow=min", "rate=none", "sync=current"}
"""Default settings of a bus, as they appear in its URI."""


def parts_of(uri: str) -> tuple[str, set[str]]:
    place, _, query = uri.partition("?")
    return place, set(query.split("&"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"ttl": 1000}, "ttl"),
        ({"overflow": "explode"}, "overflow"),
        ({"messages_max": 0}, "messages_max"),
        ({"bytes_max": 0}, "bytes_max"),
        ({"redeliveries_max": -1}, "redeliveries_max"),
        ({"close_timeout_s": 0}, "close_timeout_s"),
        ({"interface": object()}, "interface"),
    ],
)
def test_a_factory_refuses_invalid_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        jms.ConnectionFactory("fjm2://", **options)


def test_unsupported_calls_of_a_factory_raise() -> None:
    factory = jms.ConnectionFactory("fjm2://")
    for call in (factory.create_xa_connection, factory.create_xa_context):
        with pytest.raises(NotImplementedError):
            call()
    for call in (factory.create_topic_connection, factory.create_queue_connection):
        with pytest.raises(jms.ResourceAllocationError):
            call()
    with pytest.raises(jms.ResourceAllocationError):
        jms.ConnectionFactory("fjm2://", overrides={})


def test_a_connection_that_is_not_open_says_how_to_open_it() -> None:
    connection = jms.ConnectionFactory("fjm2://").create_connection()
    with pytest.raises(jms.IllegalStateError, match="await it"):
        connection.create_session()


def test_the_import_does_not_load_the_engine() -> None:
    program = "import sys, fjm2.jms; print('numpy' in sys.modules, 'fjm2.norm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
