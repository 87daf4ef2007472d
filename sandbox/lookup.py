"""How tests and people at the terminal name somebody or something of a sandbox: by its name, or by its id."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def find_named(what: str, wanted: str, by_name: Mapping[str, T], by_id: Mapping[str, T]) -> T:
    """The one that is `wanted`; a channel may be named with its `#`.

    Args:
        what: it is, in words.

    Raises:
        ValueError: there is none.
    """
    found = by_name.get(wanted.removeprefix("#")) or by_id.get(wanted)
    if found is None:
        raise ValueError(f"there is no {what} {wanted}")
    return found
