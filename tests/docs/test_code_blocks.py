"""Tests that run the programs and commands on the pages, or check that they could be run.

The blocks of a section run together, in the order shown, on their own host, which is cut off from all others:

- `python`: a block that begins with an import is a program. Any other block continues the previous block of the
  section. A block with a `title` is a file, which a command of the page runs.
- `sh`, `console`: each line is a command in its own terminal. `export` and `cd` apply to the lines after them.
- Blocks in other languages are checked by `test_other_blocks.py`.
"""

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

import click
import pytest
from doc_blocks import BLOCKS, PAGES, ROOT, Block, Line, indented_code, lines_of
from doc_commands import check_line, is_safe
from doc_terminals import Command, clone, hosts, run
from netns import Namespace, skip_where_impossible

SHELLS = ("sh", "bash", "console")
LANGUAGES = {*SHELLS, "python", "toml", "json", "sql", "text", "nginx", "java", "yaml"}

NOT_RUN = {
    r"pip3? |pipx |(\S*/)?python3? -m (venv|pip) |git clone": "fetches from elsewhere",
    r"sudo (?!fjm2 )|apt|useradd |chown |install |systemctl |journalctl |sysctl |nft |/opt/": "is about the whole host",
    r"docker ": "takes a container engine, and images from elsewhere",
    r"make\b": "takes minutes; the target's own tests run it",
    r"fjm2-bench (run|traces|compare|micro|scale|durable)": "takes minutes; tests/spark and tests of the bench run it",
    r"\. |source ": "the tests have the environment already",
    r"tcpdump ": "listens to an interface; what it writes is there already",
    r"fjm2d (check|run|status) --config (paris|lyon)": "two hosts; tests/gateway/test_gateway_sites.py runs it",
    r"fjm2 (sub greetings|pub greetings \"hello, Lyon\") --uri": "two hosts, as above",
}
"""Commands that are checked but not run, by a pattern, with the reason.

Their programs, options and files must exist.
"""

GOES_ON = (
    r"fjm2 (sub|reply|tail|top)\b",
    r"fjm2 doctor --(listen|probe)",
    r"fjm2 pub .*--rate",
    r"fjm2 keep (?!status|bench)",
    r"fjm2 norm recv (?!.*--count)|fjm2 .*(--timeout 60|--duration 30)",
    r"(fjm2d|fjm2admin) run\b(?!.*--check)",
    r"python examples/(web_app|jms_chat|notebook)",
    r"python examples/jms_worker.py --threads",
    r"python (examples/app_service|prices|web|jobs)\.py",
    r"curl .*quotes --data",
)
"""Patterns of commands that run until Ctrl-C."""

CODES = {
    r"fjm2 doctor": {0, 1, 2},
    r"fjm2 topics|fjm2 top --once|fjm2 keep status": {0, 1},
    r"fjm2 request inventory": {1},
    r"fjm2 norm send .*--ack-from 2,3": {1},
}
"""Accepted exit codes of commands that may exit with another code than 0. Some find nothing on an isolated host."""

SCREENS = (r"fjm2 top(?!.*--once)",)

SAID = {
    ("README.md", "Start"): ["listening", ""],
    ("docs/index.md", "FJM2"): ["ABC\n"],
    ("docs/quickstart.md", "A subscriber and a publisher"): ["ABC 17.25\nDEF 30.0\n", ""],
    ("docs/quickstart.md", "The same with commands"): ["ABC\nDEF\n", "", "", ""],
    ("docs/quickstart.md", "Request and reply"): ["", "HELLO", "GOOD MORNING"],
    ("docs/quickstart.md", "Without asyncio"): ["good evening\ngood night\n"],
    ("docs/jms.md", "Receiving"): ["topic://orders two of them", "something happened", "topic://prices.eur 1.08"],
    ("docs/jms.md", "Transactions"): ["take 10 from A\ngive 10 to B\n"],
    ("docs/app.md", "Applications"): ["topic://prices.eur ABC 17.25", "", "GOOD MORNING"],
    ("docs/app.md", "Jobs for other hosts"): ["", "doing job 1\ndoing job 2\n"],
    ("docs/app.md", "Start and stop"): ["", "", '{"ABC":12.5}'],
    ("docs/norm.md", "Sending and receiving objects"): ["b'temperature': 14 bytes from node", ""],
    ("docs/norm.md", "Acknowledgements of the application"): ["7 b'all'"],
    ("docs/norm.md", "Streams and message marks"): ["1000 lines", ""],
    ("docs/norm.md", "Messages"): ["1000 messages, the last of them from node", ""],
    ("docs/norm.md", "Acknowledgement"): ["it is here", "confirmed by {2}, no answer from {3}"],
    ("docs/norm.md", "Flow control"): ["confirmed by [], not by [7]"],
    ("docs/examples.md", "Quotes"): ["10 messages", "7 messages", "20 messages sent"],
    ("docs/examples.md", "Patterns of topics"): [
        "sensors/attic/temperature: ",
        "sensors/cellar/humidity: ",
        "60 messages sent",
    ],
    ("docs/examples.md", "Requests and replies"): ["", "", "you asked: how are you?"],
    ("docs/examples.md", "Chat"): ["* Bob is here", "listening"],
    ("docs/examples.md", "Workers"): ["", "job 7: done by thread"],
    ("docs/examples.md", "Priorities"): ["alarm 4 overtook", "4000 messages handed over"],
    ("docs/examples.md", "Transactions"): ["rolled back: bad coffee"],
    ("docs/examples.md", "A service made of functions"): ["", "20 messages sent", "ABC: {'price': "],
    ("docs/examples.md", "A web application"): ["", '"price": 12.5', ""],
    ("docs/examples.md", "A notebook"): ["the first: ", "20 messages sent"],
    ("docs/examples.md", "Files"): ["README.md: ", "LICENSE: ", "2 hosts got it all"],
    ("docs/examples.md", "NORM objects"): ["b'text/plain': b'two'", "sent; no receiver asks for more"],
    ("docs/examples.md", "NORM streams"): ["1000 messages, the last is number 999", "1000 messages in"],
    ("docs/examples.md", "The bare engine"): ["ObjectCompleted", "TransmissionFlushed"],
}
"""Text that each terminal of a section prints, as the pages promise. Only a part of the output is compared."""

SIDE_BY_SIDE = 8
CAPTURE = ROOT / "tests" / "vectors" / "data-one-segment.pcap"
READERS_FILES = {
    "log": "first line\nsecond line\n",
    "file": "a file\n",
    "a.iso": "a",
    "b.iso": "b",
    "picture.png": "p",
    "measurements.csv": "1,2\n",
    "app.py": (
        "from fjm2.jms import Topic\n"
        "from fjm2.jms.blocking import ConnectionFactory\n\n"
        "with ConnectionFactory().create_context() as context:\n"
        "    context.create_producer().send(Topic('prices'), '17.25')\n"
    ),
}
"""Files that the pages assume the reader has, with their contents."""


Scene: TypeAlias = tuple[str, str]
"""A page, and the name of one of its sections."""


def scenes() -> dict[Scene, list[Block]]:
    """Return the blocks of code that the tests run, by page and section."""
    found: dict[Scene, list[Block]] = {}
    for block in BLOCKS:
        if block.language in (*SHELLS, "python"):
            found.setdefault((block.page, block.section), []).append(block)
    return found


SCENES = scenes()
LINES = [line for block in BLOCKS if block.language in SHELLS for line in lines_of(block)]


def reason_not_to_run(line: str) -> str | None:
    """Return the reason why a command is checked but not run, or None if it is run."""
    return next((reason for form, reason in NOT_RUN.items() if re.match(form, line)), None)


def commands_of(blocks: list[Block], folder: Path) -> Iterator[Command]:
    """Return the commands of a section, each for its own terminal."""
    before = exports_before(blocks[0])
    program = ""
    for block in blocks:
        if block.title:
            continue  # a file, already written
        if block.language == "python":
            program = block.code if is_whole(block) else f"{program}\n{block.code}"
            path = folder / f"block{block.line}.py"
            path.write_text(program)
            yield command(f"{block}: python", f"exec python -W error {path.name}", before)
        for line in lines_of(block) if block.language in SHELLS else ():
            if _SETS.fullmatch(line.text):
                before.append(line.text)
            elif reason_not_to_run(line.text) is None:
                assert is_safe(line.text), f"{block}: {line.text}: neither run nor listed in NOT_RUN"
                text = line.text.removesuffix("&").strip()
                yield command(f"{block}: {text}", text.removeprefix("sudo "), before)


def is_whole(block: Block) -> bool:
    """Return True if a block is a complete program, not the continuation of another block."""
    return block.code.startswith(("import ", "from "))


_SETS = re.compile(r"(export )?\w+=('[^']*'|\"[^\"$`]*\"|[^\s$`;&|'\"]*)|cd \w[\w/-]*")
"""Pattern of lines that set a variable or change the folder for the lines after them."""


def exports_before(block: Block) -> list[str]:
    """Return the `export` lines that stand earlier on the page: the reader sets variables once."""
    earlier = [one for one in BLOCKS if one.page == block.page and one.line < block.line and one.language in SHELLS]
    lines = [line.text for one in earlier for line in lines_of(one)]
    return [text for text in lines if text.startswith("export ") and _SETS.fullmatch(text)]


def command(name: str, text: str, before: list[str]) -> Command:
    """Return a command line with what the tests expect of it."""
    plain = re.sub(r"^(\w+=('[^']*'|\S*) +)+", "", text).removeprefix(".venv/bin/")
    return Command(
        "\n".join([*before, text]),
        name,
        goes_on=is_one_of(GOES_ON, plain),
        codes=frozenset(next((codes for form, codes in CODES.items() if re.match(form, plain)), {0})),
        is_screen=is_one_of(SCREENS, plain),
    )


def is_one_of(forms: Iterable[str], text: str) -> bool:
    return any(re.match(form, text) for form in forms)


def play(scene: Scene, hosts: SimpleQueue[Namespace], folder: Path) -> None:
    """Run the commands of a section in a new folder."""
    clone(folder)
    shown = {block.title: block.code for block in BLOCKS if block.title and block.page == scene[0]}
    for name, content in (READERS_FILES | shown).items():
        assert Path(name).name == name, f"{scene[0]}: {name}: expected a plain name of a file"
        (folder / name).write_text(content)
    shutil.copy(CAPTURE, folder / "lan.pcap")
    commands = list(commands_of(SCENES[scene], folder))
    for at, words in enumerate(SAID.get(scene, ())):
        commands[at] = commands[at]._replace(says=words)
    namespace = hosts.get()
    try:
        run(commands, namespace, folder)
    finally:
        hosts.put(namespace)


@pytest.fixture(scope="session")
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Scene], None]]:
    """Yield a function that waits until a section has run. Sections run in parallel, as they mostly wait."""
    skip_where_impossible("ip", "bash")
    asked = [
        item.callspec.params["scene"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "scene" in item.callspec.params
    ]
    with hosts(SIDE_BY_SIDE) as free, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        futures: dict[Scene, Future[None]] = {
            scene: pool.submit(play, scene, free, tmp_path_factory.mktemp("reader")) for scene in asked
        }
        yield lambda scene: futures[scene].result()
        for future in futures.values():
            future.cancel()


@pytest.mark.root
@pytest.mark.parametrize("scene", SCENES, ids=" / ".join)
def test_sections_run(scene: Scene, played: Callable[[Scene], None]) -> None:
    played(scene)


@pytest.mark.parametrize("line", [line for line in LINES if reason_not_to_run(line.text)], ids=lambda line: line.text)
def test_commands_that_are_not_run_could_be(line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word in shlex.split(line.text, comments=True):
        if re.fullmatch(r"[\w-]+\.(?!py)\w+", word):  # a file of the reader's
            Path(word).touch()
    check_line(line.text)


@pytest.mark.parametrize(
    "line",
    [
        "useradd --system fjm2d",
        "sudo install -m 644 packaging/fjm2d.toml /etc/fjm2",
        "rm -rf inbox",
        "fjm2 sub prices | sh",
        "fjm2 sub prices && rm -rf inbox",
        "fjm2 sub $(rm -rf inbox)",
        "fjm2d keygen /etc/fjm2/fjm2d.key",
        "fjm2 sub prices > /etc/hosts",
        "fjm2 norm recv --out ../inbox",
        "curl https://example.org",
        "python -c 'print(1)'",
        "make demo",
    ],
)
def test_only_our_own_commands_are_run(line: str) -> None:
    assert not is_safe(line)


@pytest.mark.parametrize(
    "line",
    [
        "fjm2 sub prices --loud",
        "sudo fjm2d chek --config fjm2d.toml",
        "fjm2 pub prices 1 && fjm2 pbu prices 1",
        "FJM2_URI='fjm2://' fjm2-bench run --nothing > said",
        "make nonsense",
        "make bench PLAM=--full",
        "pip install '.[everything]'",
        "python examples/nothing.py",
        "sudo install -m 644 packaging/systemd/nothing.service /etc/systemd/system/",
        "frobnicate",
    ],
)
def test_commands_that_could_not_run_are_noticed(line: str) -> None:
    with pytest.raises((AssertionError, click.ClickException)):
        check_line(line)


def test_no_block_is_overlooked() -> None:
    assert {str(block): block.language for block in BLOCKS if block.language not in LANGUAGES} == {}
    assert {page.name: found for page in PAGES if (found := list(indented_code(page)))} == {}
    assert len(SCENES) > 50


def test_no_exception_is_left_over() -> None:
    """Every pattern and section in the tables above still occurs on a page."""
    assert SAID.keys() - SCENES.keys() == set()
    texts = [re.sub(r"^(\w+=('[^']*'|\S*) +)+", "", line.text) for line in LINES]
    plain = [text.removeprefix(".venv/bin/") for text in texts] + texts
    forms = [*NOT_RUN, *GOES_ON, *CODES, *SCREENS]
    assert [form for form in forms if not any(re.match(form, text) for text in plain)] == []


def test_files_that_pages_show_are_used() -> None:
    for block in BLOCKS:
        if block.title.endswith(".py"):
            assert any(block.title in line.text for line in LINES if line.block.page == block.page), (
                f"{block} is not run"
            )
