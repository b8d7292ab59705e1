"""Names of files that `fjm2 sub --save-to` keeps."""

import threading
from pathlib import Path

from fjm2.commands.support.rendering import take_path


def test_several_who_save_at_once_get_different_names(tmp_path: Path) -> None:
    found: list[str] = []
    gate = threading.Barrier(8)

    def save() -> None:
        gate.wait()
        found.append(take_path(str(tmp_path), "a.bin"))

    threads = [threading.Thread(target=save) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {Path(path).name for path in found} == {"a.bin", *(f"a-{number}.bin" for number in range(2, 9))}
