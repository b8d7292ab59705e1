"""Peers in Java: programs of this folder, compiled on first use."""
