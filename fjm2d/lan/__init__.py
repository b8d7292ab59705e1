"""The side of the LAN: its groups, the other gateways on it, and the JMS connections."""
