"""Destinations of messages and the subscriptions to them."""
