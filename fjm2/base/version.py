"""The version of FJM2, which setup.cfg reads from here."""

__version__ = "0.1.0"
"""Version of FJM2, which `fjm2 --version` prints."""
