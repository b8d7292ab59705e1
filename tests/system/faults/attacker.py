"""An attacker on the network of a bus, for tests.

    python attacker.py HOST GROUP PORT SEED RATE

It sends at most `RATE` forged datagrams a second, of all kinds, in the names of the senders that it hears: half of them
from its own address, half from that of the sender. From a sender's address it sends one datagram for each that it hears
from there, at most: it does not outpace those whom it imitates. `claim NODE_ID` on stdin lets it also answer all probes
in the name of that node. It prints `ready`, and runs until it is ended.
"""

import select
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from forging import Forger

_TURN_S = 0.005
_ANSWERS_S = 0.05
"""Interval of answers. Senders wait for nobody who is silent for much longer."""


def main(host: str, group: str, port: str, seed: str, rate: str) -> None:
    random, claimed = Random(int(seed)), 0
    interval_s = 1 / float(rate) if float(rate) else float("inf")
    next_at = answers_at = time.monotonic()
    with Forger(group, int(port), host) as forger:
        print("ready", flush=True)
        while True:
            if select.select([sys.stdin], (), (), _TURN_S)[0]:
                if not (words := sys.stdin.readline().split()):
                    return
                claimed = int(words[1])
            forger.listen()
            if claimed and time.monotonic() >= answers_at:
                answers_at = time.monotonic() + _ANSWERS_S
                forger.answer_probes(claimed)
            if not forger.heard or time.monotonic() < next_at:
                continue
            next_at = time.monotonic() + interval_s
            sender_id = random.choice(list(forger.heard))
            forgery = random.choice(list(forger.forgeries(sender_id).values()))
            source = random.choice([None, forger.addresses[sender_id]])
            if source is None or sender_id in forger.spoke:
                forger.send(forgery, source)


if __name__ == "__main__":
    main(*sys.argv[1:])
