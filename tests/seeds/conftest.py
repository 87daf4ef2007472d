from tests.fixtures.conversation import converse

__all__ = ["converse"]
