"""Discards: a subscriber tells the publishers that it lost messages, even some that it had confirmed."""
