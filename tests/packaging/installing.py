"""Install the wheel and each of its extras with pip in otherwise empty environments, and try what they are for.

    python tests/packaging/installing.py [EXTRA ...]

`make packaging` runs this program. It takes minutes, as pip fetches everything. The exit code is 1 if something fails.
"""

import shlex
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from built import Packages, environment

DEADLINE_S = 1200.0
TRIED = {
    "": ("fjm2 --version", "fjm2 doctor --json --uri 'fjm2://?interface=127.0.0.1&ttl=0'", "fjm2 completion zsh"),
    "admin": ("fjm2admin run --check",),
    "gateway": ("fjm2d keygen key", "fjm2d --help"),
    "bench": ("fjm2-bench scale --receivers 4 --segments 8 --plot scale.png",),
    "spark": (
        "fjm2-bench traces generate traces --rows 1000",
        "fjm2-bench traces scale --help",
        "fjm2-bench traces ingest traces warehouse --settle 0 --quiet --memory 1g",
    ),
    "otel": ("python -W error -c 'import fjm2.telemetry'",),
    "durable": ("python -W error -c 'import crc32c, fjm2.base.checksums as c; assert c.IS_CRC32C_FAST'",),
    "docs": ("mkdocs --version",),
    "dev": ("pytest --version", "mypy --version", "ruff --version"),
}
DOCTORS = {0, 1, 2}
"""Exit codes of `fjm2 doctor` that are no failures here: they are verdicts on this host."""


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = Packages(folder)
        known = ["", *packages.extras()]
        assert set(known) <= set(TRIED), f"nothing is tried of {sorted(set(known) - set(TRIED))}"
        results = [is_good(folder, packages.wheel, extra) for extra in sys.argv[1:] or known]
    return 0 if all(results) else 1


def is_good(folder: Path, wheel: Path, extra: str) -> bool:
    began_at = time.monotonic()
    place = folder / f"venv-{extra}"
    venv.create(place, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place), "--disable-pip-version-check"]
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    faults = [
        fault
        for words in ([*pip, "install", "--quiet", wanted], [*pip, "check"])
        if (fault := run(words, folder, place))
    ]
    for text in () if faults else TRIED[extra]:
        program, *arguments = shlex.split(text)
        if fault := run([str(place / "bin" / program), *arguments], folder, place):
            faults.append(f"{text}: {fault}")
    verdict = "; ".join(faults) or "good"
    print(f"{extra or 'base':8} {time.monotonic() - began_at:6.1f} s  {verdict}", flush=True)
    return not faults


def run(words: list[str], folder: Path, place: Path) -> str:
    """Run a command. Return a description of its failure, or "" if it succeeded."""
    variables = environment() | {"PATH": f"{place / 'bin'}:/usr/bin:/bin", "FJM2ADMIN_DATA": str(folder / "data")}
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=DEADLINE_S)
    is_right = done.returncode == 0 or ("doctor" in words and done.returncode in DOCTORS)
    if is_right and "Traceback" not in done.stderr:
        return ""
    return f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}"


if __name__ == "__main__":
    sys.exit(main())
