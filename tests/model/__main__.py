"""Command line of the models: `python tests/model`.

Without options it runs the quick cases, compares outcome, steps and number of states with the table, and exits with 1
if one differs. `tests/` is added to sys.path first, since this folder is run as a program and not as a module.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import model
from model.cases import CASES, Case
from model.explorer import Found, explore, replay


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="model",
        description=model.__doc__,
        epilog="Exit status: 0 if every case ends as the table says, 1 if not.",
    )
    parser.add_argument("--case", choices=CASES, metavar="NAME", help=f"one of: {', '.join(CASES)}")
    parser.add_argument("--all", action="store_true", help="the long cases, too: minutes")
    parser.add_argument("--trace", action="store_true", help="print the steps and states of the counterexamples")
    options = parser.parse_args(arguments)
    names = [options.case] if options.case else [name for name, case in CASES.items() if case.is_quick or options.all]
    is_expected = True
    for name in names:
        case = CASES[name]
        began = time.process_time()
        found = explore(case.model)
        print(
            f"{name:44} {found.states:>9,} states  {outcome_of(found)}  ({time.process_time() - began:.1f} s)",
            flush=True,
        )
        if found[:3] != (case.violated, case.steps, case.states):
            is_expected = False
            print(f"  expected {case.states:,} states, {outcome_of(Found(*case[2:5], []))}")
        if options.trace:
            print_trace(case, found)
    return 0 if is_expected else 1


def outcome_of(found: Found) -> str:
    """Return the outcome of a search in words."""
    return f"{found.violated} breaks after {found.steps} steps" if found.violated else "holds"


def print_trace(case: Case, found: Found) -> None:
    """Print the way to the bad state, with what each step changes."""
    before = case.model.start()
    for number, (step, state) in enumerate(replay(case.model, found.path), start=1):
        print(f"  {number:2} {' '.join(map(str, step))}")
        for place, (old, new) in enumerate(zip(before, state, strict=True)):
            if new != old:
                name = f"keeper {place}" if place < len(state) - 1 else "rest"
                print(f"       {name}: {changes_of(old, new)}")
        before = state


def changes_of(old: object, new: object) -> str:
    """Return the fields of a part of a state that a step has changed."""
    fields = type(new)._fields  # type: ignore[attr-defined]
    values = zip(fields, old, new, strict=True)  # type: ignore[call-overload]
    return ", ".join(f"{field}={value!r}" for field, before, value in values if before != value)


if __name__ == "__main__":
    sys.exit(main())
