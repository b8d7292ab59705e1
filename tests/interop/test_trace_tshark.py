"""Tests of captures that tshark has written: FJM2 counts the same messages in them as tshark."""

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pcap
import pytest

from fjm2.record import Labels
from fjm2.traces.capture import samples_of

VECTORS = Path(__file__).parents[1] / "vectors"
NAMES = ["cc-on", "loss-burst", "loss-heavy-all-nack-levels", "squelch", "fec129-stream"]
KINDS = {"1": "info", "2": "data", "3": "cmd", "4": "nack", "5": "ack"}
"""Names of NORM's messages, by type."""


@pytest.fixture(scope="module")
def tshark(require_tool: Callable[[str], str]) -> str:
    return require_tool("tshark")


def counts_of(path: Path) -> Counter[str]:
    with path.open("rb") as file:
        lines = list(samples_of(file, Labels(run="r", node="n")))
    return sum((Counter(line["c"]) for line in lines if line["source"] != "capture"), Counter[str]())


@pytest.mark.parametrize("name", NAMES)
def test_we_count_what_tshark_counts(name: str, tshark: str) -> None:
    path = VECTORS / f"{name}.pcap"
    ports = {packet.destination.rpartition(":")[2] for packet in pcap.read(path)}
    decoded_as = [word for port in sorted(ports) for word in ("-d", f"udp.port=={port},norm")]
    argv = [tshark, "-r", str(path), *decoded_as, "-T", "fields", "-e", "norm.type"]
    types = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    ours = counts_of(path)
    theirs = Counter(KINDS[one] for one in types)
    assert {kind: ours[f"{kind}_datagrams"] for kind in theirs} == theirs
    assert theirs.total() == len(pcap.read(path))


@pytest.mark.parametrize("form", ["pcap", "nsecpcap", "pcapng"])
def test_we_read_what_tshark_writes(form: str, tshark: str, tmp_path: Path) -> None:
    path, original = tmp_path / "written", VECTORS / "cc-on.pcap"
    subprocess.run([tshark, "-r", original, "-F", form, "-w", path], capture_output=True, check=True)
    assert path.read_bytes() != original.read_bytes() or form == "pcap"
    assert counts_of(path) == counts_of(original)
