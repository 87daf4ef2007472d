"""What readers take for one character, whatever it is made of: Unicode's extended grapheme clusters (UAX #29)."""

from collections.abc import Iterator

import regex  # type: ignore[import-untyped]  # it comes without types

_CLUSTER = regex.compile(r"\X")


def boundaries(text: str, start: int, stop: int) -> Iterator[int]:
    """Where in `text` a character of the reader's begins, between `start`, which is such a place, and `stop`."""
    for found in _CLUSTER.finditer(text, start, stop):
        yield found.start()


def is_boundary(text: str, at: int) -> bool:
    """Whether a character of the reader's begins at `at`, when what stands before it is white space."""
    return at == 0 or len(_CLUSTER.match(text, at - 1, at + 1)[0]) == 1
