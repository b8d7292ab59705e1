"""Losses: their kinds, the place at which each is flagged, and the words in which people are told."""
