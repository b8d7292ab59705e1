"""Handshake, keys, sealing and replay protection of the tunnel."""
