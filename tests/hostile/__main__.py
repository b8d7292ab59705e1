"""Command line of the attacks: `python tests/hostile`.

Options choose the number of cases, the seed and the kind of attack. The output is a summary, or the command that
reproduces a failure. `tests/` is added to sys.path first, since this folder is run as a program and not as a module.
"""

import argparse
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

import hostile
from hostile.attack import attack
from hostile.figures import Figures, print_summary
from hostile.limits import Broken


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="hostile",
        description=hostile.__doc__,
        epilog="Exit status: 0 if all went as promised, 1 if not (what reproduces it is printed), 130 if interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--cases", type=int, default=10_000_000, metavar="N", help="datagrams or trains (default: 10,000,000)")
    add("--seed", type=int, metavar="S", help="makes the same cases again (default: a new one, which is printed)")
    add("--only", metavar="KIND", help="this kind of attack and no other")
    add("--forging", action="store_true", help="only attackers that speak in the honest sender's name, too")
    add("--honest", action="store_true", help="only attackers that do not")
    options = parser.parse_args(arguments)
    seed = Random().getrandbits(32) if options.seed is None else options.seed
    is_forging = True if options.forging else False if options.honest else None
    print(f"seed {seed}, {options.cases:,} cases", flush=True)
    figures = Figures()
    started = time.perf_counter()
    show_progress = sys.stderr.isatty()

    def progress(done: int) -> None:
        if show_progress:
            rate = done / (time.perf_counter() - started)
            print(f"\r{done:,} cases, {rate:,.0f} cases/s, {done / options.cases:.0%} ", end="", file=sys.stderr)

    status = 0
    try:
        attack(options.cases, seed, only=options.only, is_forging=is_forging, figures=figures, progress=progress)
    except KeyboardInterrupt:
        status = 130
    except Broken as broken:
        print(f"\n{broken}", file=sys.stderr)
        if broken.__cause__ is not None and not isinstance(broken.__cause__, Broken):
            raise
        status = 1
    print_summary(figures, time.perf_counter() - started)
    return status


if __name__ == "__main__":
    sys.exit(main())
