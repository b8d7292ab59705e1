"""Batches of messages: sent with one call, or received as a whole."""
