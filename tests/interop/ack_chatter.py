"""A node that asks everybody for acknowledgements of applications, and sends some to a sender, again and again.

    python ack_chatter.py GROUP PORT INTERFACE SENDER_NODE COUNT

It ends successfully once it has sent COUNT of each, and reports when it has joined.
"""

import asyncio
import itertools
import sys

from fjm2.norm import Session

INTERVAL_S = 0.005


async def main(group: str, port: str, interface: str, sender: str, count: str) -> None:
    sent = 0
    async with Session(group, int(port), interface=interface, node_id=77) as session:
        print('{"ready": true}', flush=True)
        for number in itertools.count():
            session.request_acks(16 + number % 240, [2] * (number % 3), ack_id=number % 256)
            sent += session.send_ack(int(sender), 16 + number % 240, bytes(number % 1400), ack_id=number % 256)
            if sent >= int(count):
                break
            while session.take() is not None:
                pass
            await asyncio.sleep(INTERVAL_S)


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 40))
