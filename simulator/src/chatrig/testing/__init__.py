"""Bots under test, as processes or in the process of the test, and fixtures for pytest."""
