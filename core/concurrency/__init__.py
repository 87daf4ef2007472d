"""Helpers for asyncio."""
