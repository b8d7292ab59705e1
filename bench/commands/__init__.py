"""The commands that send, receive and compare, each in its own module."""
