"""Discards: subscribers tell publishers of messages that they lost, although they may have confirmed them."""
