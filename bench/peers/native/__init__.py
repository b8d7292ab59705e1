"""Peers in C: programs of this folder, compiled on first use."""
