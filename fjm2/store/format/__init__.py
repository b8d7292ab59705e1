"""Formats of the files of a store."""
