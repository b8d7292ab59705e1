"""The LAN's side of a gateway: the groups of the LAN, the other gateways on it, and its JMS connections."""
