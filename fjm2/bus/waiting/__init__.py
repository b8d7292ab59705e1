"""Waiting in a bus: for full consumers, for full receivers, and for subscribers that do not confirm."""
