from tests.conversation import converse

__all__ = ["converse"]
