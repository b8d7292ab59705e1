# %% [markdown]
# # Quotes in a notebook
#
# In a terminal, `python examples/jms_publish.py --messages 3000` publishes for some minutes. Meanwhile open this file
# in an editor with cells (VS Code, Spyder, PyCharm), or as a notebook (`jupytext --to ipynb notebook.py`), and run it
# cell by cell. The blocking API has an event loop of its own, so it works inside the event loop of a notebook.

# %% Subscribe. Idle cells must not hold back the bus: messages that are not received are dropped, the oldest first.
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

# %% Receive one message, or None after ten seconds.
first = consumer.receive(timeout=10)
print("nothing yet: is the publisher running?" if first is None else f"the first: {first.get_body(dict)}")

# %% In the background, a listener collects prices in a thread while other cells run.
prices: deque[float] = deque(maxlen=10_000)


def collect(message: Message) -> None:
    if isinstance(message, MapMessage):
        prices.append(message.get_double("price"))


consumer.message_listener = collect

# %% Run this cell again and again.
seen = list(prices)
print(f"{len(seen)} quotes, {mean(seen):.2f} on average" if seen else "no quotes so far")

# %% At the end, close the context.
context.close()
