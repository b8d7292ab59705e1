"""Durable subscriptions: consumers of what keepers store, and the connection's part in the service of a cell."""
