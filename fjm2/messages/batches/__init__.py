"""Frames of many messages at once, and their properties as columns."""
