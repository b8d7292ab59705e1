"""Take the screenshots of the service's page for `docs/img`. Run as `python tests/admin/screenshot.py`."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from browser import Browser
from network import Network
from running import ROOT, Admin

_TRAFFIC_S = 60
_PICTURES = ROOT / "docs" / "img"


def take(chromium: str, folder: Path) -> None:
    data = folder / "admin.sqlite"
    with (
        Admin(data, heartbeat_s=1, stale_s=5, log_level="error") as admin,
        Browser(chromium) as browser,
        Network(admin.url, data) as network,
    ):
        browser.open(admin.url, 1200, 900)
        browser.until("document.querySelectorAll('#nodes tbody tr').length === 4")
        time.sleep(_TRAFFIC_S)
        network.silence("Lisbon")
        browser.until("document.querySelectorAll('#nodes .state.stale').length === 1", 20)
        time.sleep(_TRAFFIC_S / 4)
        browser.screenshot(_PICTURES / "admin.png")
        browser.open(admin.url, 390, 844, dark=True)
        browser.until("document.querySelectorAll('#nodes tbody tr').length === 4")
        time.sleep(_TRAFFIC_S / 4)
        browser.screenshot(_PICTURES / "admin-phone.png", whole=False)


if __name__ == "__main__":
    found = shutil.which("chromium")
    if found is None:
        sys.exit("chromium is not installed")
    _PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        take(found, Path(made))
