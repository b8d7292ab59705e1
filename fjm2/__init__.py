"""FJM2: brokerless JMS messaging for Python over NORM reliable multicast (RFC 5740)."""

__version__ = "0.1.0"
"""As in `fjm2 --version`."""
__all__ = ["__version__"]
