"""The command line: `python tests/history [SCENARIO ...] --seeds 0-9`. Needs root."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "system"), str(HERE.parent / "system" / "faults")]

from durable_history import Verdict  # noqa: E402
from nemesis import SCENARIOS, Outcome, Scenario, run  # noqa: E402


def main() -> int:
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(
        prog="history", description="Harm a cell of real keepers, and check that it keeps what it has promised to keep."
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"all if none is named: {', '.join(names)}")
    parser.add_argument("--seeds", default="0", metavar="FIRST-LAST", help="seeds to run (default: 0)")
    parser.add_argument("--harms", default=5, type=int, help="harms in a run (default: 5)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the history of failed runs in this folder")
    parser.add_argument("--eat-data", action="store_true", help="let syncs of keepers do nothing, by eatmydata")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(names):
        parser.error(f"{', '.join(sorted(unknown))}: no such scenario")
    first, _, last = options.seeds.partition("-")
    failed = runs = 0
    for scenario in SCENARIOS:
        if options.scenarios and scenario.name not in options.scenarios:
            continue
        for seed in range(int(first), int(last or first) + 1):
            runs += 1
            failed += bool(run_once(scenario, seed, options))
    print(f"{failed} of {runs} failed")
    return 1 if failed else 0


def run_once(scenario: Scenario, seed: int, options: argparse.Namespace) -> list[str]:
    """Run a scenario, print the verdict with the load of the machine, and return what is broken."""
    place = Path(tempfile.mkdtemp()) if options.keep is None else options.keep / f"{scenario.name}-{seed}"
    place.mkdir(parents=True, exist_ok=options.keep is None)
    began = time.monotonic()
    try:
        outcome = run(scenario, seed, place, options.harms, eats_data=options.eat_data)
    except Exception as error:
        outcome = Outcome([f"{type(error).__name__}: {error}"], Verdict())
    if options.keep is None or not outcome.broken:
        shutil.rmtree(place)
    took_s, load, verdict = time.monotonic() - began, os.getloadavg()[0], outcome.verdict
    word = "FAILED" if outcome.broken else "ok"
    print(
        f"{scenario.name} {seed}: {word}, {verdict.sent} sent, {verdict.in_doubt} in doubt, "
        f"{verdict.delivered} delivered, {verdict.redelivered} again, {took_s:.1f} s, load {load:.1f}",
        flush=True,
    )
    for text in outcome.broken:
        print(f"    {text}", flush=True)
    return outcome.broken


if __name__ == "__main__":
    sys.exit(main())
