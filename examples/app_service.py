"""A service made of functions: it keeps the latest quotes, and answers requests for them.

python examples/app_service.py
python examples/jms_publish.py --messages 20
FJM2_URI='fjm2://?interface=127.0.0.1&ttl=0' fjm2 request quotes.latest ABC
"""

import os
from typing import Any

import click

from fjm2.app import App
from fjm2.jms import Message

app = App(os.environ.get("FJM2_URI", "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0"))
latest: dict[str, dict[str, Any]] = {}


@app.listener("quotes", selector="JMSType IS NULL", overflow="drop_oldest")  # the type marks the end of the quotes
def on_quote(quote: dict[str, Any], message: Message) -> None:
    symbol = message.get_string_property("symbol")
    if symbol is not None:
        latest[symbol] = quote


@app.listener("quotes.latest")
async def on_request(symbol: str) -> str:
    return f"{symbol}: {latest.get(symbol, 'no quote yet')}"


@click.command()
def main() -> None:
    """Serve until Ctrl-C, on the bus that FJM2_URI names."""
    app.run()


if __name__ == "__main__":
    main()
