"""Makes the picture of a report in `docs/img`: `python tests/report/screenshot.py REPORT.html`."""

import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "admin"))

from browser import Browser

_PICTURE = Path(__file__).parents[2] / "docs" / "img" / "report.png"
_WIDTH, _HEIGHT = 1000, 2350


def take(chromium: str, page: Path) -> None:
    with Browser(chromium) as browser:
        browser.open(page.absolute().as_uri(), _WIDTH, _HEIGHT)
        browser.screenshot(_PICTURE, whole=False)


if __name__ == "__main__":
    found = shutil.which("chromium")
    if found is None or len(sys.argv) != 2:
        sys.exit("chromium and the path of a report.html are needed")
    take(found, Path(sys.argv[1]))
