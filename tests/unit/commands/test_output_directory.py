"""Files of `fjm2 norm recv`: objects and streams of all senders in one directory."""

from pathlib import Path

from fjm2.commands.norm_recv import OutputDirectory
from fjm2.norm.events import LossReason, SenderVanished, StreamOpened, StreamReceived

SENDER, STREAM = 7, 500


def test_a_stream_that_goes_on_after_its_sender_was_away_stays_in_its_file(tmp_path: Path) -> None:
    output, path = OutputDirectory(tmp_path), tmp_path / f"stream-{STREAM}"
    output.handle(StreamOpened(SENDER, STREAM, 0))
    output.handle(StreamReceived(SENDER, STREAM, 0, b"one\ntw", (0, 4)))
    output.handle(SenderVanished(SENDER, LossReason.SENDER_GONE))
    output.handle(StreamOpened(SENDER, STREAM, 6))
    output.handle(StreamReceived(SENDER, STREAM, 6, b"o\nthree\n", (2,)))
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    output.handle(SenderVanished(SENDER, LossReason.SENDER_GONE))
    output.handle(StreamOpened(SENDER, STREAM, 20))
    output.handle(StreamReceived(SENDER, STREAM, 20, b"ur\nfive\n", (3,)))
    assert path.read_bytes() == b"one\ntwo\nthree\nfive\n"
    output.handle(SenderVanished(SENDER, LossReason.SENDER_RESTARTED))
    output.handle(StreamOpened(SENDER, STREAM, 0))
    output.handle(StreamReceived(SENDER, STREAM, 0, b"anew\n", (0,)))
    output.close()
    assert path.read_bytes() == b"anew\n"
