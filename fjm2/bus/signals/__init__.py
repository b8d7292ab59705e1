"""Signals: short messages beside the streams of a bus, each passed to the handler of its kind."""
