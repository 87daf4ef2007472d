"""Asyncio support: task ownership, retries, event loop time, garbage collector settings."""
