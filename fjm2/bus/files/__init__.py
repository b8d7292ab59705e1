"""Files as bodies of messages: sent in parts, and put together on disk."""
