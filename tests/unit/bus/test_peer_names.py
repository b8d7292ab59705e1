"""People are told who a node is by client id and host, and where the docs say what to do."""

import re
from pathlib import Path

import pytest

from fjm2.bus.losses.names import PAGE, PeerName, PeerNames, Remedy, listed
from fjm2.bus.presence import Announcement, Flag, PresenceTable

NODE, LANE, OTHER = 0x32F63628, 0x32F63629, 0x63A18582
HOST = "10.0.0.13"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (PeerName(NODE, ("desk-7",), HOST), "'desk-7' at 10.0.0.13"),
        (PeerName(NODE, ("desk-7", "desk-8"), HOST), "'desk-7' and 'desk-8' at 10.0.0.13"),
        (PeerName(NODE, ("desk-7",)), "'desk-7'"),
        (PeerName(NODE, (), HOST), "a program without client id at 10.0.0.13 (node 0x32f63628)"),
        (PeerName(NODE), "node 0x32f63628"),
        (PeerName(42), "node 0x0000002a"),
        (PeerName(NODE, ("a\nb\x1b[31m",)), r"'a\nb\x1b[31m'"),
        (PeerName(NODE, ("x" * 255,)), f"'{'x' * 60}...'"),
    ],
)
def test_a_node_is_named_as_far_as_it_is_known(name: PeerName, text: str) -> None:
    assert str(name) == text


def test_lists_are_sentences_and_short() -> None:
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed("abc") == "a, b and c"
    assert listed(range(1_200), shown_max=2) == "0, 1 and 1,198 more"


def test_the_docs_have_the_sections_that_problems_point_to() -> None:
    page = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text()
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
    assert {remedy.value for remedy in Remedy} <= anchors
    assert Remedy.LOST.after("it happened") == f"it happened; see {PAGE}#messages-are-lost"


def test_presence_teaches_client_ids_and_events_teach_hosts() -> None:
    table = PresenceTable()
    table.names.note_host(NODE, HOST)
    table.names.note_host(LANE, HOST)
    table.names.note_host(OTHER, "10.0.0.14")
    table.update(NODE, Announcement(1, (NODE, LANE, OTHER), "desk-7"), 0.0)
    assert str(table.names.of(NODE)) == str(table.names.of(LANE)) == "'desk-7' at 10.0.0.13"
    assert table.names.of(OTHER).client_ids == ()  # lanes are not sent from elsewhere
    table.update(NODE, Announcement(2, (NODE, LANE), None), 0.0)
    table.update(NODE, Announcement(3, (NODE, LANE), "desk-8"), 0.0)
    assert table.names.of(LANE).client_ids == ("desk-7", "desk-8")
    for connection in (1, 2, 3):
        table.update(NODE, Announcement(connection, flags=Flag.GOODBYE), 0.0)
    assert str(table.names.of(NODE)) == "'desk-8' at 10.0.0.13"  # what is told of it may come later
    named = table.names.all_of({NODE, OTHER})
    assert [name.node_id for name in named] == [NODE, OTHER]


def test_names_take_bounded_memory_and_strangers_displace_nobody() -> None:
    names = PeerNames()
    names.note_host(NODE, HOST)
    names.note_client(NODE, 1, "desk-7")
    for stranger in range(1, 100_000):
        names.note_host(stranger, "10.6.6.6")
    assert str(names.of(NODE)) == "'desk-7' at 10.0.0.13"
    for stranger in range(1, 100_000):
        names.note_client(stranger, stranger, "evil")
    for connection in range(1000):
        names.note_client(NODE, connection, "many")
    assert len(names) <= 2 * 8192
    assert len(names.of(NODE).client_ids) == 16
