"""Whose a thought signature is.

A signature can be read by the vendor alone that made it, and another one refuses a request that has it. ADK keeps
it as bytes that name no owner: so each is marked with its provider when it leaves for the history, and one with
another's mark is left out on the way back. Gemini's have no mark, which is how ADK's own Gemini class knows them.
"""

from collections.abc import Iterable
from dataclasses import replace

from core.models.provider import Message, Part, Text, Thought, ToolCall

_MARK = b"parley:"
_UNMARKED = "gemini"


def mark(signature: bytes | None, provider: str) -> bytes | None:
    """The signature as the history keeps it; `provider` is the name of the one that made it."""
    return signature if signature is None or provider == _UNMARKED else _prefix(provider) + signature


def own(messages: Iterable[Message], provider: str) -> list[Message]:
    """The messages as `provider` may be sent them: with its own signatures, as it made them, and no other's.

    A thought without a signature of its own is left out: no vendor takes another's thoughts, and none needs its
    own unsigned. So is a message of which nothing remains.
    """
    kept = (
        replace(message, parts=tuple(mine for part in message.parts for mine in _kept(part, provider)))
        for message in messages
    )
    return [message for message in kept if message.parts]


def _kept(part: Part, provider: str) -> Iterable[Part]:
    if not isinstance(part, Text | Thought | ToolCall):
        return (part,)
    signature = _unmarked(part.signature, provider)
    if signature is None and (isinstance(part, Thought) or (isinstance(part, Text) and not part.text)):
        return ()
    return (replace(part, signature=signature),)


def _unmarked(signature: bytes | None, provider: str) -> bytes | None:
    if signature is None:
        return None
    if provider == _UNMARKED:
        return None if signature.startswith(_MARK) else signature
    prefix = _prefix(provider)
    return signature.removeprefix(prefix) if signature.startswith(prefix) else None


def _prefix(provider: str) -> bytes:
    return _MARK + provider.encode() + b":"
