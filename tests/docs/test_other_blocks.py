"""Tests of code blocks that are not programs: the code that reads settings, selectors or JSON accepts them."""

import asyncio
import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from doc_blocks import BLOCKS, ROOT, Block, lines_of

from fjm2 import metrics
from fjm2.jms import ConnectionFactory
from fjm2.jms.selector import Selector
from fjm2.messages.errors import InvalidSelectorError


def in_language(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


@pytest.mark.parametrize("block", in_language("toml"), ids=str)
def test_settings_are_taken(block: Block, tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    tables = tomllib.loads(block.code)
    file = tmp_path / "settings.toml"
    if "experiment" in tables:
        check_plan(file, block.code)
    elif {"wan", "lan", "group", "peer", "key_file", "status", "log"} & tables.keys():
        check_gateway(file, block.code)
    else:
        check_service(file, block.code, require_tool("openssl"))


def check_plan(file: Path, text: str) -> None:
    """Check that a plan of experiments can be loaded."""
    from fjm2bench.runs import plan

    file.write_text(text)
    assert plan.load(file).experiments


def check_gateway(file: Path, text: str) -> None:
    """Check the gateway configuration `text` as `fjm2d check` does.

    Before that, replace the placeholders of keys by generated keys, and add a group if the text has none.
    """
    pytest.importorskip("cryptography", reason="the extra `gateway` is not installed")
    from fjm2d import config
    from fjm2d.keys import KeyPair

    text = re.sub(r"\b[A-Z]+_KEY\b", lambda _: KeyPair.generate().public.text, text)
    if "[[group]]" not in text:
        text += '\n[[group]]\naddress = "239.192.57.40:5740"\n'
    file.write_text(text)
    config.load(file, {})


def check_service(file: Path, text: str, openssl: str) -> None:
    """Check a configuration of the node-list service as `fjm2admin run --check` does.

    A generated certificate takes the place of the reader's.
    """
    pytest.importorskip("fastapi", reason="the extra `admin` is not installed")
    from fjm2admin import config
    from fjm2admin.web import server

    form = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x -keyout key.pem"
    words = [openssl, *form.split(), "-out", "chain.pem"]
    subprocess.run(words, check=True, capture_output=True, cwd=file.parent)
    file.write_text(text.replace("/etc/fjm2/", f"{file.parent}/"))
    server.check(config.load(file, {}))


@pytest.mark.parametrize("text", [line for block in in_language("sql") for line in block.code.splitlines()])
def test_selectors_are_selectors(text: str) -> None:
    assert Selector(text).names


REFUSED = [block for block in in_language("text") if block.page == "docs/selectors.md"]


@pytest.mark.parametrize("text", [line for block in REFUSED for line in block.code.splitlines()])
def test_examples_of_refused_input_are_refused(text: str) -> None:
    with pytest.raises(InvalidSelectorError):
        Selector(text)


def test_json_is_json() -> None:
    """Each block in JSON is one object, or has one object per line."""
    for block in in_language("json"):
        is_whole = block.code.startswith(("{\n", "[\n"))
        for text in [block.code] if is_whole else block.code.splitlines():
            assert json.loads(text), block


@pytest.mark.parametrize("block", in_language("nginx"), ids=str)
def test_settings_of_a_proxy_are_whole(block: Block) -> None:
    """The block has the form of nginx settings, and turns buffering off."""
    assert block.code.count("{") == block.code.count("}")
    assert all(re.search(r"[;{}]$", line) for line in block.code.splitlines() if line)
    assert "proxy_buffering off;" in block.code


def test_prometheus_examples_name_our_metrics(port: int) -> None:
    """The examples for Prometheus are valid YAML, and name only metrics that FJM2 serves."""
    yaml = pytest.importorskip("yaml", reason="the extra `docs` is not installed")
    served = set(re.findall(r"^# TYPE (\w+)", asyncio.run(metrics_of_a_bus(port)), re.MULTILINE))
    for block in in_language("yaml"):
        for kind, content in yaml.safe_load(block.code).items():
            assert kind in ("scrape_configs", "groups"), block
            assert content, block
        assert set(re.findall(r"\bfjm2_\w+", block.code)) <= served


async def metrics_of_a_bus(port: int) -> str:
    """Return the text of the metrics that FJM2 serves while a bus is open."""
    factory = ConnectionFactory(f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0")
    async with factory.create_context():
        return metrics.render()


def test_java_is_java(tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    """The Java examples compile.

    Those for JMS 2.0 fail only because names are missing, since the installed library is JMS 1.1.
    """
    library = Path("/usr/share/java/geronimo-jms_1.1_spec.jar")
    javac = require_tool("javac")
    if not library.exists():
        pytest.skip("libactivemq-java is not installed (`make system-deps` installs it, as root)")
    blocks = in_language("java")
    imports = "".join(block.code for block in blocks if block.code.startswith("import "))
    sources = [tmp_path / "Today.java", tmp_path / "New.java"]
    for source, is_new in zip(sources, (False, True), strict=True):
        codes = [block.code for block in blocks if block.code.startswith("// JMS 2.0") is is_new]
        methods = [
            f"void block{number}() throws Exception {{\n{code}}}\n"
            for number, code in enumerate(codes)
            if not code.startswith("import ")
        ]
        source.write_text(f"{imports}class {source.stem} {{\n{JAVA_FIELDS}{''.join(methods)}}}\n")
    words = [javac, "-proc:none", "-Xmaxerrs", "1000", "-d", tmp_path, "-cp", library, *sources]
    said = subprocess.run(words, capture_output=True, text=True).stderr
    errors = set(re.findall(r"(\w+)\.java:\d+: error: (.*)", said))
    assert errors <= {("New", "cannot find symbol")}, said


JAVA_FIELDS = """
ConnectionFactory factory; Connection connection; Session session; Topic topic;
MessageConsumer consumer; MessageProducer producer; TextMessage message;
"""
"""Declarations of the variables that earlier blocks of a page define."""


def test_guides_install_files_where_services_expect_them() -> None:
    """The commands of the guides install files where the systemd units expect them."""
    for page, unit in (("docs/gateway.md", "fjm2d"), ("docs/admin.md", "fjm2admin")):
        shells = [block for block in in_language("sh", "bash", "console") if block.page == page]
        lines = [line.text.split() for block in shells for line in lines_of(block)]
        installed = {words[-1] for words in lines if words[:2] == ["sudo", "install"]}
        text = (ROOT / "packaging" / "systemd" / f"{unit}.service").read_text()
        assert f"/etc/fjm2/{unit}.toml" in installed & set(text.split())
        assert f"User={unit}" in text
        assert ["sudo", "useradd", "--system", unit] in lines
        programs = {line.split()[0].removeprefix("ExecStart=") for line in text.splitlines() if "ExecStart=" in line}
        assert programs == {f"/opt/fjm2/bin/{unit}"}
        assert ["sudo", "python3", "-m", "venv", "/opt/fjm2"] in lines
