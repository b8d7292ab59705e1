"""Take the screenshot of a report for `docs/img`. Run as `python tests/report/screenshot.py REPORT.html`."""

import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "admin"))

from browser import Browser

_PICTURE = Path(__file__).parents[2] / "docs" / "img" / "report.png"
_WIDTH = 1000
_SECTIONS = 4
"""Number of plots in the screenshot."""
_BOTTOM = f"Math.floor(document.querySelectorAll('section')[{_SECTIONS - 1}].getBoundingClientRect().bottom)"


def take(chromium: str, page: Path) -> None:
    with Browser(chromium) as browser:
        address = page.absolute().as_uri()
        browser.open(address, _WIDTH)
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        browser.open(address, _WIDTH, browser.value(_BOTTOM))
        browser.screenshot(_PICTURE, whole=False)


if __name__ == "__main__":
    found = shutil.which("chromium")
    if found is None or len(sys.argv) != 2:
        sys.exit("chromium and the path of a report.html are needed")
    take(found, Path(sys.argv[1]))
