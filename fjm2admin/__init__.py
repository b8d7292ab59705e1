"""The node-list service: gateways register here and learn of each other, operators watch them on its page."""
