"""Tests of `fjm2 top`, `topics` and `tail` on real buses.

They show the right figures, and do not disturb the bus.
"""

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from commanding import DEADLINE_S, Command, Start, starting
from netns import Namespace, Network

from fjm2.base.logs import one_line
from fjm2.commands import main
from fjm2.commands.support.live_view import quantity, rate, span
from fjm2.commands.support.screen import fit

GROUP = "239.192.57.97"


@pytest.fixture
def uri(port: int) -> str:
    return f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0"


@pytest.fixture
def start(uri: str) -> Iterator[Start]:
    """Return a function that starts commands on the test's own bus.

    The function waits until a command listens or watches.
    """
    with starting(uri) as start_one:
        yield start_one


def line_where(command: Command, is_so: Callable[[Any], bool]) -> Any:
    """Read reports of `top --json`, and return the first one that fulfils the condition."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        report = json.loads(command.read_line())
        if is_so(report):
            return report
    raise AssertionError(f"not within {DEADLINE_S} s: {report}")


def by(rows: list[dict[str, Any]], name: str) -> dict[Any, dict[str, Any]]:
    return {row[name]: row for row in rows}


# The figures.


def test_the_figures_match_the_sent_messages(start: Start) -> None:
    top = start("top", "--json", "--interval", 0.5, "--topic", "orders")
    line_where(top, lambda report: not report["connections"])
    subs = [start("sub", topic, "--client-id", name) for topic, name in (("prices", "desk"), ("orders", "office"))]
    pubs = [
        start("pub", "prices", "--count", 400, "--size", 50, "--rate", 200, "--client-id", "feed"),
        start("pub", "alarms", "--count", 30, "--rate", 15, "--priority", 9, "--client-id", "alarm"),
    ]
    during = line_where(top, lambda report: report["messages"] > 200)
    assert 50 < by(during["topics"], "name")["prices"]["messages_per_s"] < 400
    assert during["connections"]
    for pub in pubs:
        assert pub.end()[0] == 0
    report = line_where(top, lambda report: report["messages"] >= 430 and not report["messages_per_s"])
    assert report["messages"] == 430
    assert (report["overruns"], report["not_norm"]) == (0, 0)
    topics = by(report["topics"], "name")
    assert {name: topic["messages"] for name, topic in topics.items()} == {"prices": 400, "alarms": 30, "orders": 0}
    assert {name: topic["subscribers"] for name, topic in topics.items()} == {
        "prices": ["desk"],
        "alarms": [],
        "orders": ["office"],
    }
    assert {sender["messages"] for sender in report["senders"]} == {400, 30}
    assert all(sender["datagrams_missed"] == sender["nacks"] == 0 for sender in report["senders"])
    assert set(by(report["connections"], "client_id")) == {"desk", "office"}
    for sub in subs:
        code, _, err = sub.interrupt()
        assert code == 130, err
    code, _, err = top.interrupt()
    assert (code, err) == (130, "")


def test_lanes_and_publishers_are_shown_separately(start: Start) -> None:
    start("sub", "alarms", "--client-id", "desk")
    top = start("top", "--json", "--interval", 0.5)
    top.read_line()
    pub = start("pub", "alarms", "--count", 60, "--rate", 20, "--priority", 8, "--client-id", "alarm")

    def is_known(report: Any) -> bool:
        return any(one["owner"] == "alarm" and one["lane"] == 2 for one in report["senders"])

    report = line_where(top, is_known)
    alarms = by(report["topics"], "name")["alarms"]
    assert (alarms["publishers"], alarms["subscribers"]) == (["alarm"], ["desk"])
    connection = by(report["connections"], "client_id")["alarm"]
    assert connection["publishes"] == ["alarms"]
    assert connection["address"].startswith("127.0.0.1:")
    assert pub.end()[0] == 0


def test_topics_name_publishers_and_subscribers(start: Start) -> None:
    start("sub", "prices", "--client-id", "desk")
    topics = start("topics", "--duration", 8, "--topic", "quiet")
    start("sub", "quiet", "--client-id", "listener")
    start("pub", "prices", "--count", 120, "--rate", 12, "--client-id", "feed")
    code, out, err = topics.end()
    assert (code, err) == (0, "")
    assert b"\x1b" not in out
    rows = {line.split()[0]: line.split() for line in out.decode().splitlines()}
    assert rows["TOPIC"] == ["TOPIC", "MSG/S", "B/S", "MSGS", "PUB", "SUB", "PUBLISHERS", "SUBSCRIBERS"]
    assert rows["prices"][-4:] == ["1", "1", "feed", "desk"]
    assert rows["quiet"][-4:] == ["0", "1", "-", "listener"]
    code, out, _ = start("topics", "--duration", 6.5, "--json").end()
    told = by(json.loads(out)["topics"], "hash")
    assert code == 0
    assert {tuple(one["subscribers"]) for one in told.values()} == {("desk",), ("listener",)}


def test_an_empty_bus_is_reported(start: Start) -> None:
    code, out, err = start("topics", "--duration", 0.3).end()
    assert (code, out) == (1, b"")
    assert "no member was heard" in err
    assert "fjm2 doctor" in err
    code, out, _ = start("top", "--once", "--duration", 0.3).end()
    assert code == 1
    assert b"No member is heard yet" in out


# Tail.


def test_tail_shows_the_same_messages_as_sub(start: Start) -> None:
    sub = start("sub", "prices", "--json", "--count", 20)
    tail = start("tail", "prices", "--json", "--count", 20)
    start("pub", "other", "no", "--count", 20)
    assert start("pub", "prices", "17.25", "-p", "symbol=ABC", "--count", 20).end()[0] == 0
    expected = [json.loads(line) for line in sub.end()[1].splitlines()]
    code, out, _ = tail.end()
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == expected


def test_tail_of_all_in_short_lines(start: Start) -> None:
    tail = start("tail", "--all", "--count", 2, "--selector", "n > 1")
    start("sub", "prices")
    for number in (1, 2, 3):
        topic = f"prices.{number}"
        assert start("pub", topic, f"two\nlines \x1b[31m{number}", "-p", f"n={number}").end()[0] == 0
    code, out, err = tail.end()
    assert code == 0, err
    line = rb"\d\d:\d\d:\d\d\.\d{3}  prices\.[23]  [0-9a-f]{16}  two\\nlines \\x1b\[31m[23]\n"
    assert re.fullmatch(rb"(%b){2}" % line, out), out


def test_tail_ends_cleanly_when_its_reader_closes_the_pipe(start: Start) -> None:
    tail = start("tail", "prices")
    pub = start("pub", "prices", "--count", 200, "--rate", 100)
    tail.read_line()
    assert tail.popen.stdout is not None
    tail.popen.stdout.close()
    assert tail.popen.wait(DEADLINE_S) == 0
    assert pub.end()[0] == 0


def test_a_tail_without_enough_messages_fails(start: Start) -> None:
    code, out, err = start("tail", "prices", "--count", 1, "--timeout", 0.5).end()
    assert (code, out) == (1, b"")
    assert "0 messages" in err


# Observers do not disturb the bus.


def udp_sent(host: Namespace) -> int:
    """Return the number of UDP datagrams that the namespace has sent so far."""
    rule = next(
        line
        for line in host.run("iptables", "-nvxL", "OUTPUT").splitlines()
        if "ACCEPT " in line and "policy" not in line
    )
    return int(rule.split()[0])


@pytest.mark.root
def test_observers_send_nothing_and_nobody_waits_for_them(network: Network) -> None:
    bus = f"fjm2://{GROUP}:5740?interface=veth0"
    publisher, lossy, onlooker = (network.namespace() for _ in range(3))
    network.switch(publisher, lossy, onlooker)
    lossy.lose(0.1)
    onlooker.run("iptables", "-A", "OUTPUT", "-p", "udp", "-j", "ACCEPT")
    with starting(bus) as start:
        sub = start("sub", "prices", "--count", 1500, "--client-id", "lossy", within=lossy)
        tail = start("tail", "prices", "--json", "--count", 1500, within=onlooker)
        top = start("top", "--json", "--interval", 0.5, within=onlooker)
        top.read_line()
        arguments = ("--count", 1500, "--size", 1000, "--rate", 600, "--client-id", "feed")
        pub = start("pub", "prices", *arguments, within=publisher)
        report = line_where(top, lambda report: report["messages"] >= 1500)
        code, _, err = pub.end()
        assert code == 0, err
        assert "1 subscriber" in err
        code, out, err = tail.end()
        assert (code, len(out.splitlines())) == (0, 1500), err
        assert sub.end()[0] == 0
        top.interrupt()
    assert udp_sent(onlooker) == 0
    sender = max(report["senders"], key=lambda one: one["messages"])
    assert (sender["owner"], sender["messages"], sender["datagrams_missed"]) == ("feed", 1500, 0)
    assert sender["nacks"] > 10
    assert sender["repairs"] >= 50
    assert report["slowest"]["owner"] == "lossy"
    assert report["slowest"]["nacks"] == sender["nacks"]
    assert [one["owner"] for one in report["receivers"] if one["nacks"]] == ["lossy"]


@pytest.mark.root
def test_an_observer_reports_its_losses(network: Network) -> None:
    bus = f"fjm2://{GROUP}:5740?interface=veth0"
    publisher, onlooker = network.namespace(), network.namespace()
    network.switch(publisher, onlooker)
    onlooker.lose(0.1)
    with starting(bus) as start:
        tail = start("tail", "prices", "--timeout", 15, within=onlooker)
        pub = start("pub", "prices", "--count", 500, "--size", 1000, "--rate", 500, within=publisher)
        assert pub.end()[0] == 0
        code, out, err = tail.end()
    assert code == 1
    assert re.search(r"^missed: [\d,]+ bytes of streams were not received$", err, re.MULTILINE), err
    assert 300 < len(out.splitlines()) < 500


# Mistakes.


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["top"], "standard output is not a terminal: expected --once or --json"),
        (["tail"], "expected either TOPIC or --all"),
        (["tail", "prices", "--all"], "expected either TOPIC or --all"),
        (["tail", "prices", "--selector", "a >"], "'a >'"),
        (["top", "--interval", "0"], "expected 100ms to 1h"),
        (["top", "--interval", "soon"], "soon: expected seconds, or a number with a unit"),
        (["topics", "--uri", "http://x"], "expected fjm2://"),
        (["topics", "--topic", ""], "is not a destination name"),
        (["top", "--once", "--uri", "fjm2://127.0.0.1"], "expected a multicast group"),
        (["topics", "--uri", "fjm2://?interface=nowhere0"], "nowhere0"),
    ],
)
def test_mistakes_are_reported_in_a_line(arguments: list[str], told: str) -> None:
    outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code in (1, 2)
    assert told in outcome.output
    assert "Traceback" not in outcome.output


@pytest.mark.parametrize("name", ["top", "topics", "tail"])
def test_help_has_an_example(name: str) -> None:
    assert f"Example: fjm2 {name}" in CliRunner().invoke(main, [name, "--help"]).output


# The terminal.


class Terminal:
    """A real terminal: a shell in tmux."""

    def __init__(self, folder: Path, columns: int, rows: int, uri: str) -> None:
        self._socket = str(folder / "tmux")
        size = ("-x", str(columns), "-y", str(rows))
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-e", f"FJM2_URI={uri}", "sh")

    def _tmux(self, *arguments: str) -> str:
        argv = ("tmux", "-S", self._socket, *arguments)
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout

    def run(self, command: str) -> None:
        """Type a command once the shell asks for one. The prompt would come after what is typed earlier."""
        self.wait_for(r"[#$]\s*\Z")
        self._tmux("send-keys", "-l", command)
        self.press("Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def lines(self, *, with_colours: bool = False) -> list[str]:
        return self._tmux("capture-pane", "-p", *(["-e"] if with_colours else [])).splitlines()

    def wait_for(self, pattern: str) -> list[str]:
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            lines = self.lines()
            if re.search(pattern, "\n".join(lines), re.MULTILINE):
                return lines
            time.sleep(0.1)
        raise AssertionError(f"{pattern!r} does not show:\n" + "\n".join(self.lines()))

    def stop(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._tmux("kill-server")


@pytest.fixture
def terminal(require_tool: Callable[[str], str], tmp_path: Path, uri: str) -> Iterator[Terminal]:
    require_tool("tmux")
    made = Terminal(tmp_path, 80, 24, uri)
    yield made
    made.stop()


def begin(terminal: Terminal, command: str = "top") -> None:
    terminal.run(f"{sys.executable} -W error -m fjm2 {command}; echo code=$?")


def test_top_fills_a_small_terminal_and_a_wide_one(terminal: Terminal, start: Start) -> None:
    for number in range(8):
        start("sub", f"topic.{number}", "--client-id", f"desk-{number}")
    begin(terminal, "top --interval 0.5")
    terminal.wait_for(r"on lo +[\d.]+m?s")
    start("pub", "prices", "--count", 6000, "--rate", 150, "--client-id", "feed")
    lines = terminal.wait_for(r"^feed +0 +1[45]\d ")
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    for title in ("TOPIC", "SENDER", "RECEIVER", "CONNECTION"):
        assert any(line.startswith(title) for line in lines), lines
    assert any(re.match(r"prices +1[45]\d ", line) for line in lines), lines
    assert any(re.fullmatch(r"\d+ more", line.rstrip()) for line in lines), lines
    assert not any("PUBLISHERS" in line for line in lines)

    terminal.resize(160, 50)
    lines = terminal.wait_for("PUBLISHERS +SUBSCRIBERS")
    lines = terminal.wait_for(r"^desk-7 .*127\.0\.0\.1")
    assert any(line.startswith("prices") and line.rstrip().endswith("-") and " feed " in line for line in lines), lines
    assert not any(" more" in line for line in lines), lines

    terminal.resize(40, 10)
    lines = terminal.wait_for(r"\A.*\n.*msg/s.*\n[\s\S]*\Z")
    assert all(len(line) <= 40 for line in lines)
    terminal.resize(80, 24)
    terminal.wait_for(r"^CONNECTION ")

    terminal.press("q")
    lines = terminal.wait_for(r"^(# )?code=0")
    assert not any("Traceback" in line for line in lines), lines
    terminal.run("stty -a; echo end=$?")
    state = " ".join(terminal.wait_for(r"^end=0"))
    assert re.search(r"[^-]icanon", state)
    assert re.search(r"[^-]\becho\b", state)


AS_IT_IS = """
import os, termios
flags = termios.tcgetattr(0)[3]
print("lines" if flags & termios.ICANON else "keys", "waits" if os.get_blocking(0) else "never waits")
"""


def test_a_pause_and_the_end_leave_the_terminal_as_it_was(terminal: Terminal, tmp_path: Path) -> None:
    program = tmp_path / "as_it_is.py"
    program.write_text(AS_IT_IS)
    begin(terminal)
    terminal.wait_for("No member is heard yet")
    terminal.press("C-z")
    lines = terminal.wait_for("Stopped")
    assert not any("Nobody" in line for line in lines), lines
    for command in (f"{sys.executable} {program}", "fg"):
        terminal.run(command)
        terminal.wait_for("^lines waits" if command != "fg" else "No member is heard yet")
    terminal.press("q")
    terminal.wait_for(r" fg\n.* top\n\S+\s*\Z")
    terminal.run(f"clear; {sys.executable} {program}")
    terminal.wait_for("^lines waits")


def test_ctrl_c_ends_top_quietly(terminal: Terminal) -> None:
    begin(terminal)
    terminal.wait_for("No member is heard yet")
    terminal.press("C-c")
    # The shell may have printed its prompt already, as Ctrl-C reaches the shell too.
    lines = terminal.wait_for(r"^(# )?code=130")
    assert not any("Traceback" in line or "Nobody" in line for line in lines), lines


def test_no_color_is_obeyed(terminal: Terminal, start: Start) -> None:
    start("sub", "prices")
    coloured = re.compile("\x1b\\[(3[0-7]|4[0-7]|[39]8)")
    terminal.run("export NO_COLOR=1")
    begin(terminal)
    terminal.wait_for("^TOPIC")
    assert not coloured.search("\n".join(terminal.lines(with_colours=True)))
    terminal.press("q")
    terminal.wait_for(r"^(# )?code=0")


def test_a_name_cannot_send_control_codes_to_the_terminal(terminal: Terminal, start: Start) -> None:
    start("pub", "a\x1b[2Jb", "--count", 1000, "--rate", 50, "--client-id", "[bold]x[/]\x07")
    begin(terminal)
    terminal.wait_for(r"^\[bold\]x\[/\]\\x07")
    terminal.wait_for(r"^a\\x1b\[2Jb ")
    terminal.press("q")
    terminal.wait_for(r"^(# )?code=0")


# Words and lines.


@pytest.mark.parametrize(
    ("wanted", "room", "given"),
    [
        ([3, 3], 10, [3, 3]),
        ([30, 3], 10, [7, 3]),
        ([30, 30, 1], 11, [5, 5, 1]),
        ([5, 5], 0, [0, 0]),
        ([5], -4, [0]),
        ([], 5, []),
    ],
)
def test_lines_are_shared_out(wanted: list[int], room: int, given: list[int]) -> None:
    assert fit(wanted, room) == given


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (quantity(0), "0"),
        (quantity(999), "999"),
        (quantity(999.7), "1.0k"),
        (quantity(123_456), "123k"),
        (quantity(999_700), "1.0M"),
        (quantity(2.5e12), "2500.0G"),
        (rate(0.0), "0"),
        (rate(0.25), "0.2"),
        (rate(250.0), "250"),
        (span(None), "-"),
        (span(0.0012), "1.2ms"),
        (span(0.5), "500ms"),
        (span(0.9996), "1.0s"),
        (span(42.2), "42s"),
        (span(125.0), "2m05s"),
        (span(7500.0), "2h05m"),
        (one_line("a\tb\x1b[0m"), "a\\tb\\x1b[0m"),
    ],
)
def test_numbers_are_abbreviated(shown: str, expected: str) -> None:
    assert shown == expected
