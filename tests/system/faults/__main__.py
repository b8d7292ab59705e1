"""The command line: `python tests/system/faults [SCENARIO ...] --seeds 0-9`. Needs root."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from scenario import Distribution, Outcome, Scenario, run  # noqa: E402
from scenarios import SCENARIOS  # noqa: E402


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
        distribution = Distribution(scenario)
        for seed in range(int(first), int(last or first) + 1):
            outcome = run_once(scenario, seed, options.keep)
            distribution.add(outcome.figures)
            failed += bool(outcome.broken)
        for line in distribution.lines():
            print(f"{scenario.name}: {line}", flush=True)
        for text in distribution.broken():
            print(f"{scenario.name}: FAILED, {text}", flush=True)
            failed += 1
    print(f"{failed} failed")
    return 1 if failed else 0


def run_once(scenario: Scenario, seed: int, keep: Path | None) -> Outcome:
    """Run a scenario, print the verdict with the load of the machine, and return what came of it."""
    place = Path(tempfile.mkdtemp()) if keep is None else keep / f"{scenario.name}-{seed}"
    place.mkdir(parents=True, exist_ok=keep is None)
    began = time.monotonic()
    try:
        outcome = run(scenario, seed, place)
    except Exception as error:
        outcome = Outcome([f"{type(error).__name__}: {error}"])
    if keep is None or not outcome.broken:
        shutil.rmtree(place)
    took_s, load = time.monotonic() - began, os.getloadavg()[0]
    word = "FAILED" if outcome.broken else "ok"
    print(f"{scenario.name} {seed}: {word}, {len(outcome.losses)} losses, {took_s:.1f} s, load {load:.1f}", flush=True)
    for text in outcome.broken[:10]:
        print(f"    {text}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
