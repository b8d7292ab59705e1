"""NORM on real sockets and an asyncio loop."""
