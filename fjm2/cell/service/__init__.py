"""The service of a cell to its clients: sessions, subscriptions and their cursors, as decisions leave them."""
