"""FJM2: brokerless JMS messaging for Python over NORM reliable multicast (RFC 5740)."""

__version__ = "0.1.0"
__all__ = ["__version__"]
