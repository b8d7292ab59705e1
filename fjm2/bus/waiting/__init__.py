"""Waiting in a bus: for room, for full consumers, for full receivers, and for subscribers that do not confirm; and the
event loop that waits."""
