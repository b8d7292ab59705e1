# %% [markdown]
# # Quotes in a notebook
#
# In a terminal, `python examples/jms_publish.py --messages 3000` publishes for some minutes. Open this file meanwhile
# in an editor that knows cells (VS Code, Spyder, PyCharm), or as a notebook (`jupytext --to ipynb notebook.py`), and
# run cell by cell. The blocking API has an event loop of its own, so it does not mind the one that notebooks run in.

# %% Subscribe. Late or idle cells must not hold back the bus: what nobody takes is dropped, the oldest first.
import os
from collections import deque
from statistics import mean

from fjm2.jms import MapMessage, Message, Topic
from fjm2.jms.blocking import ConnectionFactory

URI = os.environ.get("FJM2_URI", "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0")
context = ConnectionFactory(URI).create_context()
consumer = context.create_consumer(Topic("quotes"), "symbol = 'ABC'", overflow="drop_oldest", messages_max=1000)
consumer.ready()
print("subscribed")

# %% One at a time: the next message, or None after ten seconds.
first = consumer.receive(timeout=10)
print("nothing yet: does the publisher run?" if first is None else f"the first: {first.get_body(dict)}")

# %% In the background: a listener gathers prices in a thread, while other cells run.
prices: deque[float] = deque(maxlen=10_000)


def gather(message: Message) -> None:
    if isinstance(message, MapMessage):
        prices.append(message.get_double("price"))


consumer.message_listener = gather

# %% Run this one again and again.
seen = list(prices)
print(f"{len(seen)} quotes, {mean(seen):.2f} on average" if seen else "no quotes so far")

# %% At the end.
context.close()
