"""The documentation's site, built as `make docs` does."""

import os
import subprocess
import sys
from pathlib import Path

from doc_blocks import ROOT

BUILD_S = 200.0


class Site:
    """The built site, and the output of the build."""

    def __init__(self, folder: Path) -> None:
        words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
        environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=BUILD_S)
        self.folder = folder
        self.code = done.returncode
        self.said = done.stdout + done.stderr
        self.pages = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}
