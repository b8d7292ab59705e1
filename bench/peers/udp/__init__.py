"""Bare UDP, from Python: what the network can do without a protocol."""
