"""Formatters for the logs of FJM2: each record has an `event` that does not change, and `fields`."""

from fjm2.base.logs import JsonLines, TextLines

__all__ = ["JsonLines", "TextLines"]
