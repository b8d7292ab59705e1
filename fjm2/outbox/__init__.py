"""The outbox of a publisher: its messages on its own disk until keepers have stored them."""
