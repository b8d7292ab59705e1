"""A web application on the bus: POST publishes a quote, GET streams quotes as server-sent events.

python examples/web_app.py --port 8000
curl --no-buffer --get http://127.0.0.1:8000/quotes --data-urlencode "selector=symbol = 'ABC'"
curl --request POST "http://127.0.0.1:8000/quotes/ABC?number=1&price=12.5"
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import click
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator

from fjm2.jms import ConnectionFactory, JMSContext, MapMessage, Selector, Topic

URI = "fjm2://239.192.57.40:5740?interface=127.0.0.1&ttl=0"
QUOTES = Topic("quotes")


@asynccontextmanager
async def connected(app: FastAPI) -> AsyncIterator[None]:
    async with app.state.factory.create_context() as app.state.context:
        yield


app = FastAPI(lifespan=connected)


@app.post("/quotes/{symbol}", status_code=202)
async def publish(symbol: str, number: int, price: float) -> None:
    context: JMSContext = app.state.context
    await context.send(QUOTES, {"price": price}, properties={"symbol": symbol, "number": number})


@app.get("/quotes")
async def stream(selector: Annotated[str, AfterValidator(lambda text: Selector(text).text)] = "") -> StreamingResponse:
    return StreamingResponse(events(selector), media_type="text/event-stream")


async def events(selector: str) -> AsyncIterator[str]:
    # Each client gets a context of its own. A slow client misses quotes and does not hold back the bus.
    async with app.state.context.create_context() as context:
        consumer = context.create_consumer(QUOTES, selector, overflow="drop_oldest", messages_max=1000)
        await consumer.ready()
        yield ": listening\n\n"
        while not app.state.server.should_exit:  # the server waits for its streams to end
            message = await consumer.receive(timeout=1)
            if isinstance(message, MapMessage):
                yield f"data: {json.dumps(dict(message.properties) | dict(message))}\n\n"


@click.command()
@click.option("--uri", default=URI, envvar="FJM2_URI", show_default=True, show_envvar=True, help="The bus.")
@click.option("--port", default=8000, show_default=True, help="TCP port of this host.")
def main(uri: str, port: int) -> None:
    """Serve until Ctrl-C."""
    app.state.factory = ConnectionFactory(uri)
    app.state.server = uvicorn.Server(uvicorn.Config(app, port=port))
    with suppress(KeyboardInterrupt):  # uvicorn raises it at the end, when all is closed
        app.state.server.run()


if __name__ == "__main__":
    main()
