"""Asyncio support: tasks, retries, event loop time, garbage collector settings."""
