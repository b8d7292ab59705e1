"""Tests of traces of real programs and of `fjm2 trace`.

The environment or the program itself enables traces. Traces survive crashes and full disks.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fjm2.commands import main
from fjm2.jms import ConnectionFactory, Topic
from fjm2.norm import Session
from fjm2.record import Labels, TraceRecorder
from fjm2d import config as configuration
from fjm2d.counting import GatewayCounters
from fjm2d.gateway import Gateway
from fjm2d.keys import KeyPair

VECTORS = Path(__file__).parents[2] / "vectors"
GROUP = "239.192.57.96"
DEADLINE_S = 30.0
COUNT = 500
BLOCKING = """
import sys, time
from fjm2.jms import Topic
from fjm2.jms.blocking import ConnectionFactory

with ConnectionFactory(sys.argv[1]).create_context() as context, context.create_context() as sending:
    consumer = context.create_consumer(Topic("news"))
    consumer.ready()
    producer = sending.create_producer()
    for _ in range(int(sys.argv[2])):
        producer.send(Topic("news"), "something happened")
    for _ in range(int(sys.argv[2])):
        assert consumer.receive(20) is not None
"""
STEADY = """
import asyncio, sys
from fjm2.norm import Session

async def main() -> None:
    async with Session(sys.argv[1], int(sys.argv[2]), interface="127.0.0.1", ttl=0) as session:
        stream = await session.open_stream()
        for number in range(int(sys.argv[3])):
            await stream.write(b"x" * 100)
            await asyncio.sleep(0.002)
        print("sent", flush=True)

asyncio.run(main())
"""

FORKING = """
import asyncio, multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
from fjm2.norm import Session

async def send(count: int) -> None:
    async with Session(sys.argv[1], int(sys.argv[2]), interface="127.0.0.1", ttl=0) as session:
        stream = await session.open_stream()
        for number in range(count):
            await stream.write(b"x" * 100)
        await session.flushed()

def work(count: int) -> None:
    asyncio.run(send(count))

work(3)
ways = multiprocessing.get_context("fork")
children = [ways.Process(target=work, args=(count,)) for count in (5, 7)]
for child in children:
    child.start()
work(3)
for child in children:
    child.join()
with ProcessPoolExecutor(1, mp_context=ways) as pool:
    list(pool.map(work, [4, 4, 4]))
forked = os.fork()
work(11 if forked == 0 else 1)
if forked:
    os.waitpid(forked, 0)
"""


def uri(port: int) -> str:
    return f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0"


def environment(directory: Path, interval_s: float = 0.02, **labels: Any) -> dict[str, str]:
    traced = {"FJM2_TRACE_DIR": str(directory), "FJM2_TRACE_INTERVAL": str(interval_s)}
    return os.environ | traced | {"FJM2_TRACE_LABELS": json.dumps(labels)}


def program(code: str, *arguments: object, env: dict[str, str], before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    argv = [*before, sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def lines_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(directory.rglob("*.jsonl")) for line in path.read_text().splitlines()]


def sums_of(lines: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Return the sums of the counters in lines of traces, by node and source."""
    found: dict[str, Counter[str]] = {}
    for line in lines:
        found.setdefault(f"{line['node']} {line['source']}", Counter()).update(line["c"])
    return found


# Programs.


def test_commands_are_traced_if_the_environment_says_so(tmp_path: Path, port: int) -> None:
    """A publisher and a subscriber are traced, each as a node of its own."""
    command = [sys.executable, "-W", "error", "-m", "fjm2"]
    place = ("--uri", uri(port))
    listening = subprocess.Popen(
        [*command, "sub", "news", *place, "--count", "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path, run="both", node="sub", role="sub", size=5),
    )
    with listening as sub:
        try:
            assert sub.stderr is not None
            assert sub.stderr.readline().startswith("listening")
            pub = subprocess.run(
                [*command, "pub", "news", "hello", *place, "--count", "20"],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                env=environment(tmp_path, run="both", node="pub", role="pub", size=5),
            )
            assert pub.returncode == 0, pub.stderr
            out, _ = sub.communicate(timeout=DEADLINE_S)
            assert out == "hello\n" * 20
        finally:
            sub.kill()
    assert {path.name for path in (tmp_path / "run=both").iterdir()} == {"node=pub.jsonl", "node=sub.jsonl"}
    lines = lines_of(tmp_path)
    assert {(line["node"], line["role"]) for line in lines} == {("pub", "pub"), ("sub", "sub")}
    assert {(line["system"], line["layer"], line["size"]) for line in lines} == {("fjm2-jms", "jms", 5)}
    sums = sums_of(lines)
    assert sums["pub lane0"]["messages_sent"] == sums["sub lane0"]["messages_received"] == 20
    assert sums["sub lane0"]["payload_bytes_received"] > 20 * 5
    assert sums["sub lane0"]["datagrams_received"] > 0


def test_the_blocking_api_is_traced(tmp_path: Path, port: int) -> None:
    running = program(BLOCKING, uri(port), COUNT, env=environment(tmp_path, run="r", node="n"))
    out, err = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, out, err) == (0, "", "")
    (counts,) = sums_of(lines_of(tmp_path)).values()
    assert counts["messages_sent"] == counts["messages_received"] == COUNT
    assert counts["payload_bytes_sent"] > COUNT * len("something happened")
    assert counts["cpu_s"] > 0.01


def test_all_processes_of_a_program_are_traced_to_their_end(tmp_path: Path, port: int) -> None:
    """Each process writes its own file, however it was forked and however rarely samples are taken."""
    running = program(FORKING, GROUP, port, env=environment(tmp_path, 60, run="r", node="n"))
    out, err = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, out, err) == (0, "", "")
    sent: Counter[str] = Counter()
    for line in lines_of(tmp_path):
        sent[line["node"]] += line["c"].get("payload_bytes_sent", 0)
    assert sent.pop("n") == 700
    assert sorted(sent.values()) == [500, 700, 1100, 1200]


def test_killed_programs_leave_whole_lines_and_go_on_counting(tmp_path: Path, port: int) -> None:
    """A crash may truncate only the last line. The next process of the same name appends to the file."""
    rounds = 4
    path = tmp_path / "run=r" / "node=n.jsonl"
    for _ in range(rounds):
        size = path.stat().st_size if path.exists() else 0
        with program(STEADY, GROUP, port, 100_000, env=environment(tmp_path, 0.001, run="r", node="n")) as running:
            deadline = time.monotonic() + DEADLINE_S
            while not path.exists() or path.stat().st_size < size + 20_000:
                assert running.poll() is None, running.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.001)
            running.kill()
    # Add half a line, as a crash of the kernel would leave it.
    with path.open("ab") as file:
        file.write(path.read_bytes().splitlines()[-1][:57])
    with program(STEADY, GROUP, port, 20, env=environment(tmp_path, 0.001, run="r", node="n")) as running:
        assert running.communicate(timeout=DEADLINE_S)[0] == "sent\n"
    bad, seqs = 0, []
    for text in path.read_text().splitlines():
        try:
            seqs.append(json.loads(text)["seq"])
        except ValueError:
            bad += 1
    assert 1 <= bad <= rounds + 1
    assert sorted(set(seqs)) == seqs
    assert len(seqs) >= seqs[-1] + 1 - bad
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.root
def test_a_full_disk_does_not_disturb_the_program(tmp_path: Path, port: int) -> None:
    """The disk has 16 KiB, in a separate mount namespace. The trace stops, but the program continues."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare, for a disk that is soon full")
    mount = f'mount -t tmpfs -o size=16k none {tmp_path} && "$@"; status=$?; wc -c {tmp_path}/*/* >&2; exit $status'
    wrapped = (unshare, "-m", "sh", "-c", mount, "sh")
    env = environment(tmp_path, 0.001, run="r", node="n")
    with program(STEADY, GROUP, port, 600, env=env, before=wrapped) as running:
        out, err = running.communicate(timeout=DEADLINE_S)
    if "mount:" in err:
        pytest.skip(f"no mounts here: {err}")
    assert (running.returncode, out) == (0, "sent\n"), err
    warning, size = err.splitlines()
    assert warning.startswith(f"disk_refused: cannot write traces to {tmp_path}")
    assert "No space left" in warning
    assert 8_000 < int(size.split()[0]) <= 16_384


def test_wrong_settings_are_reported_and_the_program_continues(tmp_path: Path, port: int) -> None:
    (tmp_path / "file").write_text("")
    env = environment(tmp_path / "file") | {"FJM2_TRACE_LABELS": "{", "FJM2_TRACE_INTERVAL": "often"}
    with program(STEADY, GROUP, port, 5, env=env) as running:
        out, err = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, out) == (0, "sent\n")
    assert "Traceback" not in err
    for words in ("FJM2_TRACE_DIR", "FJM2_TRACE_LABELS", "FJM2_TRACE_INTERVAL"):
        assert err.count(words) == 1, err


# Recorders attached in code.


def test_a_session_is_recorded_from_when_it_is_attached(tmp_path: Path, port: int) -> None:
    async def scenario() -> dict[str, Any]:
        options: dict[str, Any] = {"interface": "127.0.0.1", "ttl": 0}
        with TraceRecorder(tmp_path, Labels(run="r", node="n"), interval_s=0.02) as recorder:
            async with Session(GROUP, port, **options) as sender, Session(GROUP, port, **options) as receiver:
                recorder.attach(sender)
                recorder.attach(receiver)
                await sender.send_data(bytes(100_000))
                stream = await sender.open_stream()
                for _ in range(10):
                    await stream.write(bytes(1000))
                await stream.close()
                while receiver.stats.objects_received < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                return {"n session": sender.stats.as_dict(), "n session-2": receiver.stats.as_dict()}

    async def bounded() -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE_S):
            return await scenario()

    stats = asyncio.run(bounded())
    sums = sums_of(lines_of(tmp_path))
    assert sums.keys() == stats.keys()
    for name, told in (("payload_bytes_sent", 110_000), ("messages_sent", 10)):
        assert sums["n session"][name] == stats["n session"][name] == told
    for name in ("payload_bytes_received", "objects_received", "datagrams_received"):
        assert sums["n session-2"][name] >= stats["n session-2"][name] > 0
    assert sums["n session-2"]["payload_bytes_received"] == 110_000


def test_connections_of_one_bus_are_one_series_a_lane(tmp_path: Path, port: int) -> None:
    async def scenario() -> None:
        factory = ConnectionFactory(uri(port))
        with TraceRecorder(tmp_path, Labels(run="r", node="n"), interval_s=0.02) as recorder:
            async with factory.create_connection() as one, factory.create_connection() as two:
                for connection in (one, two):
                    recorder.attach(connection)
                    connection.start()
                consumer = two.create_session().create_consumer(Topic("prices"))
                producer = one.create_session().create_producer(Topic("prices"))
                for priority, count in ((4, 30), (9, 7)):
                    producer.priority = priority
                    for _ in range(count):
                        await producer.send(one.create_session().create_text_message("1.25"))
                for _ in range(37):
                    assert await consumer.receive(DEADLINE_S) is not None

    asyncio.run(scenario())
    sums = sums_of(lines_of(tmp_path))
    assert sums.keys() == {"n lane0", "n lane2"}
    assert (sums["n lane0"]["messages_sent"], sums["n lane2"]["messages_sent"]) == (30, 7)
    assert (sums["n lane0"]["messages_received"], sums["n lane2"]["messages_received"]) == (37, 0)
    assert [source for source, counts in sums.items() if counts["cpu_s"]] == ["n lane0"]


def gateway_of(folder: Path, name: str, port: int, peer: str) -> Gateway:
    """Return a gateway on this host whose LAN is the loopback interface."""
    folder.mkdir()
    keys = KeyPair.generate()
    keys.save(folder / "key")
    file = folder / "fjm2d.toml"
    file.write_text(
        f"""
name = "{name}"
key_file = "{folder / "key"}"
state_directory = "{folder}"
[wan]
listen = ["127.0.0.1:{port}"]
[lan]
interface = "127.0.0.1"
ttl = 0
beacon = "239.192.57.91:{port + 1}"
[[group]]
address = "{GROUP}:{port + 1}"
{peer}
"""
    )
    return Gateway(configuration.load(file, {}), keys)


def test_a_gateway_is_recorded_by_link_and_group(tmp_path: Path, port: int) -> None:
    other = KeyPair.generate()
    peer = f'[[peer]]\nname = "lyon"\npublic_key = "{other.public.text}"\nendpoints = ["127.0.0.1:9"]\n'
    gateway = gateway_of(tmp_path / "paris", "paris", port, peer)

    async def scenario() -> tuple[int, int]:
        gateway.open()
        try:
            (link,) = gateway.endpoint.peers.values()
            before = link.stats.handshakes_sent
            with TraceRecorder(tmp_path / "traces", Labels(run="r", node="n"), interval_s=0.02) as recorder:
                recorder.attach(GatewayCounters(gateway))
                async with Session(GROUP, port + 1, interface="127.0.0.1", ttl=0) as session:
                    await session.send_data(bytes(20_000))
                    await session.flushed()
                    await asyncio.sleep(0.3)
                (group,) = gateway.groups.values()
                return group.stats.datagrams_received, link.stats.handshakes_sent - before
        finally:
            await gateway.close()

    datagrams, handshakes = asyncio.run(scenario())
    lines = lines_of(tmp_path / "traces")
    sums = sums_of(lines)
    link = f"link:{other.public.id:08x}"
    assert sums.keys() == {"n gateway", f"n {link}", f"n lan:{GROUP}:{port + 1}"}
    assert datagrams >= sums[f"n lan:{GROUP}:{port + 1}"]["datagrams_received"] > 10
    assert handshakes == sums[f"n {link}"]["handshakes_sent"]
    assert {line["link"] for line in lines if line["source"] == link} == {f"{other.public.id:08x}"}
    assert {(line["system"], line["layer"], line["role"]) for line in lines} == {("fjm2d", "gateway", "gateway")}
    assert sums["n gateway"]["cpu_s"] > 0


# Commands.


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["trace", *map(str, arguments)], input=stdin)


def test_a_capture_becomes_a_trace_that_can_be_shown(tmp_path: Path) -> None:
    capture = VECTORS / "loss-burst.pcap"
    done = run("record", "--pcap", capture, "--to", tmp_path, "--system", "libnorm", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["packets"], found["senders"], found["problem"]) == (308, 1, None)
    assert found["path"] == str(tmp_path / "run=loss-burst" / "node=capture.jsonl")
    lines = lines_of(tmp_path)
    assert len(lines) == found["samples"]
    assert {(line["system"], line["role"], line["layer"]) for line in lines} == {("libnorm", "capture", "norm")}
    shown = run("show", tmp_path, "--json")
    assert shown.exit_code == 0
    told = {one["source"]: one for one in json.loads(shown.stdout)["series"]}
    assert told["sender:00000001"]["counters"]["nacks_received"] == 2
    assert told["sender:00000001"]["samples_missing"] == 0
    plain = run("show", tmp_path)
    assert "sender:00000001" in plain.stdout
    again = run("record", "--pcap", capture, "--to", tmp_path)
    assert again.exit_code == 1
    assert "exists already: choose another --run" in again.output


def test_captures_come_packed_or_from_a_pipe(tmp_path: Path) -> None:
    packed = tmp_path / "some capture.pcap.gz"
    packed.write_bytes(subprocess.run(["gzip", "-c", VECTORS / "cc-on.pcap"], capture_output=True, check=True).stdout)
    assert run("record", "--pcap", packed, "--to", tmp_path / "a").exit_code == 0
    whole = (VECTORS / "cc-on.pcap").read_bytes()
    for name, data in (("piped", whole), ("packed-and-piped", packed.read_bytes())):
        piped = run("record", "--pcap", "-", "--to", tmp_path / "a", "--run", name, stdin=data)
        assert piped.exit_code == 0, piped.output
    one, *others = (lines_of(tmp_path / "a" / f"run={name}") for name in ("some-capture", "piped", "packed-and-piped"))
    for lines in others:
        assert [line | {"run": ""} for line in one] == [line | {"run": ""} for line in lines]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pcap", "/nowhere"), "/nowhere: No such file"),
        (("--pcap", __file__), "not a packet capture: expected pcap or pcapng"),
        (("--pcap", VECTORS / "cc-on.pcap", "--run", "a/b"), "run='a/b': expected 1 to 128 letters"),
        (("--pcap", VECTORS / "cc-on.pcap", "--interval", "0"), "expected 1ms to 1h"),
        (("--pcap", VECTORS / "cc-on.pcap", "--to", "/proc/traces"), "cannot be written"),
    ],
)
def test_mistakes_are_reported_in_a_line(
    arguments: tuple[object, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("record", *arguments)
    assert done.exit_code in (1, 2)
    assert words in done.output
    assert "Traceback" not in done.output


def test_a_capture_cut_short_is_read_and_warned_of(tmp_path: Path) -> None:
    whole = (VECTORS / "cc-on.pcap").read_bytes()
    done = run("record", "--pcap", "-", "--to", tmp_path, stdin=whole[: len(whole) // 2])
    assert done.exit_code == 0
    assert f"warning: the capture breaks off at byte {len(whole) // 2}" in done.output
    assert 100 < sum(line["c"].get("packets", 0) for line in lines_of(tmp_path)) < 300


def test_ctrl_c_keeps_the_packets_read_so_far(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "fjm2", "trace", "record", "--pcap", "-", "--to", str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stderr is not None
        running.stdin.write((VECTORS / "cc-on.pcap").read_bytes())
        running.stdin.flush()
        deadline = time.monotonic() + DEADLINE_S
        while not any(path.stat().st_size for path in tmp_path.rglob("*.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        err = running.stderr.read().decode()
    assert running.returncode == 130
    assert "NORM sender" in err
    assert "Traceback" not in err
    assert len(lines_of(tmp_path)) > 5


def test_show_counts_invalid_lines(tmp_path: Path) -> None:
    done = run("record", "--pcap", VECTORS / "cc-on.pcap", "--to", tmp_path)
    assert done.exit_code == 0
    (path,) = tmp_path.rglob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    bad = [b"{torn\n", b"[]\n", b'{"v":2}\n', b"\xff\n", b"[" * 100_000 + b"\n", b"7" * 3_000_000 + b"\n"]
    path.write_bytes(b"".join([*lines[:3], *lines[4:], *bad]))
    shown = run("show", path, "--json")
    assert shown.exit_code == 1
    found = json.loads(shown.stdout)
    assert found["bad_lines"] == len(bad)
    assert sum(one["samples_missing"] for one in found["series"]) == 1
    nothing = run("show", tmp_path / "nothing")
    text = "nothing: no such file or directory: expected a trace, or a directory with traces, as programs write them to"
    assert nothing.exit_code == 1
    assert f"{text} the directory that FJM2_TRACE_DIR names" in nothing.output
