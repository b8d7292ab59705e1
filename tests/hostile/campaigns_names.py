"""Campaigns with forged node ids: the target's own id, and the honest sender's id (`forged`).

The class inherits other campaigns, to run them under the forged ids too. If the honest sender's id is forged, its
transfers cannot be guaranteed. So `forged` campaigns run only in an arena made for them.
"""

import struct
from collections.abc import Iterator
from itertools import islice

from .campaigns_commands import CommandCampaigns
from .campaigns_objects import ObjectCampaigns
from .campaigns_streams import StreamCampaigns
from .campaigns_symbols import SymbolCampaigns
from .datagrams import Fake, feedback, fti, item, request
from .target import HONEST_SENDER, TARGET, Shot


class NameCampaigns(ObjectCampaigns, SymbolCampaigns, StreamCampaigns, CommandCampaigns):
    def run_own_id(self) -> Iterator[Shot]:
        """Send datagrams in the target's own name."""
        random, target = self.random, self.target
        fake = Fake(TARGET, target.instance_id, ("10.9.9.9", 1))
        while True:
            yield Shot(fake.data(0, 0, bytes(100), fti=fti(5, 5000, 100, 10)), fake.address)
            yield Shot(fake.probe(), fake.address)
            yield Shot(feedback(4, TARGET, TARGET, target.instance_id, request(2, 8, item(0) + item(9))), fake.address)
            yield Shot(feedback(5, TARGET, HONEST_SENDER, 0, item(0), (2, 0)), fake.address)
            yield Shot(fake.command(random.randrange(1, 9)), fake.address)

    def run_forged_replay(self) -> Iterator[Shot]:
        """Send altered copies of the honest nodes' datagrams."""
        random, seen = self.random, self.target.seen
        while True:
            if not seen:
                yield Shot(b"\x12", self.fake().address)
                continue
            data = bytearray(random.choice(seen))
            for _ in range(random.choice((0, 1, 1, 2, 4))):
                at = random.randrange(min(len(data), 48))
                if at not in range(4, 10) and at > 1:
                    data[at] = random.choice((0, 1, 255, random.getrandbits(8), data[at] ^ 1 << random.randrange(8)))
            yield Shot(bytes(data), ("h", 1))

    def run_forged_sender(self) -> Iterator[Shot]:
        """Run other campaigns in the name of the honest sender."""
        random = self.random
        inner = [
            self.run_streams,
            self.run_squelches,
            self.run_fti_lies,
            self.run_commands,
            self.run_probes,
            self.run_parity,
        ]
        honest = struct.pack(">I", HONEST_SENDER)
        while True:
            for shot in islice(random.choice(inner)(), 50):
                data = bytearray(shot.data)
                data[4:8] = honest
                data[8:10] = struct.pack(">H", self.target.sender_instance_id)
                if len(data) > 16 and data[0] == 0x12 and random.random() < 0.8:
                    data[14:16] = struct.pack(">H", self.target.sender_object_id & 0xFFFF)
                yield Shot(bytes(data), ("h", 1), shot.segment_bytes and len(data))
