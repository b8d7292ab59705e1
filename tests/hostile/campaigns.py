"""Base class of all campaigns: a source of random values, and fake senders.

A campaign is an endless stream of shots at the target. The classes in campaigns_*.py inherit from this class.
"""

from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

from fuzz import Mutator

from .datagrams import Fake, fti
from .target import Shot, Sight


class Campaigns:
    """Base class of campaigns. Each method of a subclass whose name begins with `run_` is a campaign."""

    def __init__(self, random: Random, target: Sight, is_forging: bool) -> None:
        self.random = random
        self.target = target
        self.is_forging = is_forging
        self._ids = count(1)
        self._mutator = Mutator(random.getrandbits(32))
        self.campaigns: dict[str, Callable[[], Iterator[Shot]]] = {
            name.removeprefix("run_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("run_") and (is_forging or not name.startswith("run_forged"))
        }

    def fake(self, **fields: Any) -> Fake:
        """Return a new fake sender, which no node knows yet."""
        number = next(self._ids)
        random = self.random
        if random.random() < 0.3:
            fields.setdefault("grtt_q", random.choice((0, 1, 32, 76, 106, 166, 255)))
            fields.setdefault("backoff_gsize", random.choice((0, 0x0F, 0x40, 0xF7, 0xFF, random.getrandbits(8))))
        object_id = random.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF, random.getrandbits(16)))
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 6003
        return Fake(number, random.getrandbits(16), address, **{"object_id": object_id, **fields})

    def some(self, most: int) -> int:
        """Return a random number below `most`, often one close to 0 or to `most`."""
        random = self.random
        return random.choice((0, 1, most - 1, most >> 1, random.randrange(most), random.randrange(most), 2 % most))

    def lie(self) -> tuple[int, bytes]:
        """Return a FEC id, and an EXT_FTI for it whose values may be wrong."""
        random = self.random
        fec_id = random.choice((0, 2, 5, 129))
        size = random.choice((0, 1, 100, 5000, 1 << 20, 1 << 30, (1 << 30) + 1, (1 << 48) - 1, random.getrandbits(48)))
        segment = random.choice((0, 1, 2, 16, 100, 1400, 65_000, 65_001, 65_535, random.getrandbits(16)))
        block = random.choice((0, 1, 2, 64, 200, 255, 256, 65_535, 0xFFFFFFFF, random.getrandbits(32)))
        parity = random.choice((0, 0, 1, 10, 128, 254, 255, 1000, 65_535))
        bits = random.choice((0, 1, 8, 8, 16, 16, 17, 255))
        return fec_id, fti(fec_id, size, segment, block, parity, bits, random.choice((1, 1, 1, 0, 2, 255)))
