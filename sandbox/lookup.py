"""How tests and people at the terminal name somebody or something of a sandbox: by its name, or by its id."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def find_named(kind: str, name_or_id: str, by_name: Mapping[str, T], by_id: Mapping[str, T]) -> T:
    """The one that is `wanted`; a channel may be named with its `#`.

    Args:
        what: it is, in words.

    Raises:
        ValueError: there is none.
    """
    found = by_name.get(name_or_id.removeprefix("#")) or by_id.get(name_or_id)
    if found is None:
        raise ValueError(f"there is no {kind} {name_or_id}")
    return found
