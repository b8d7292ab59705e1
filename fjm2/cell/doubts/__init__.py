"""Frames that a member counted before it heard of the subscription that asks for them."""
