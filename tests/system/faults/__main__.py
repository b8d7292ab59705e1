"""The command line: `python tests/system/faults [SCENARIO ...] --seeds 0-9`. Needs root."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from scenarios import SCENARIOS, Scenario, run  # noqa: E402


def main() -> int:
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(
        prog="faults", description="Harm a bus of real processes, and check what they saw against what FJM2 promises."
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"all if none is named: {', '.join(names)}")
    parser.add_argument("--seeds", default="0", metavar="FIRST-LAST", help="seeds to run (default: 0)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the logs of failed runs in this folder")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(names):
        parser.error(f"{', '.join(sorted(unknown))}: no such scenario")
    first, _, last = options.seeds.partition("-")
    failed = 0
    for scenario in SCENARIOS:
        if options.scenarios and scenario.name not in options.scenarios:
            continue
        for seed in range(int(first), int(last or first) + 1):
            failed += not passes(scenario, seed, options.keep)
    print(f"{failed} failed")
    return 1 if failed else 0


def passes(scenario: Scenario, seed: int, keep: Path | None) -> bool:
    """Run a scenario, print the verdict, and return True if no promise was broken."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) if keep is None else keep / f"{scenario.name}-{seed}"
        place.mkdir(parents=True, exist_ok=keep is None)
        began = time.monotonic()
        try:
            verdict = run(scenario, seed, place)
            broken, losses = verdict.broken, len(verdict.losses)
        except Exception as error:
            broken, losses = [f"{type(error).__name__}: {error}"], 0
        took_s = time.monotonic() - began
    print(f"{scenario.name} {seed}: {'FAILED' if broken else 'ok'}, {losses} losses, {took_s:.1f} s", flush=True)
    for text in broken[:10]:
        print(f"    {text}", flush=True)
    return not broken


if __name__ == "__main__":
    sys.exit(main())
