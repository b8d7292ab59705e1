"""Scaling of NACKs, repairs and time with the number of receivers, in a simulated network."""
