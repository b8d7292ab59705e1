"""Ledgers: the numbers that messages get for keepers, and the sends that wait until keepers have stored them."""
