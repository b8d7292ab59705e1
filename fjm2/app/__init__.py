"""Programs made of functions that get messages, declared by `@app.listener("prices")`. A thin layer over `fjm2.jms`."""

from .application import App

__all__ = ["App"]
