"""Keeps secrets out of whatever leaves the process: logs, stored results, messages."""

import re

_MASK = "[redacted]"

#: What a secret looks like when nobody told us that it is one.
_SHAPES = re.compile(
    r"""
      xox[a-z]-[\w-]{4,}                      # Slack: bot, user and other tokens
    | xapp-[\w-]{4,}                          # Slack: app-level tokens
    | sk-[\w-]{12,}                           # OpenAI and Anthropic keys
    | AIza[\w-]{20,}                          # Google API keys
    | (?<=://)[^\s/:@]*:[^\s/@]+(?=@)         # user and password in a URL
    | (?i:(?<=bearer\s))[\w.~+/=-]{8,}        # an Authorization header
    """,
    re.VERBOSE,
)

_known: set[str] = set()


def remember(secret: str) -> None:
    """Have `secret` redacted wherever it appears, whatever it looks like."""
    if len(secret) >= 4:
        _known.add(secret)


def redact(text: str) -> str:
    """`text` without what is, or looks like, a secret."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return _SHAPES.sub(_MASK, text)
