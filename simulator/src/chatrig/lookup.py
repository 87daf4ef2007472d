"""Lookup of users and channels by name or id."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def find_named(kind: str, name_or_id: str, by_name: Mapping[str, T], by_id: Mapping[str, T]) -> T:
    """Return the user, channel or other item with a given name, else with this id.

    A `#` before the name is ignored.

    Args:
        kind: the word for the item in the error (`user`, `channel`).

    Raises:
        ValueError: no item has this name or id.
    """
    item = by_name.get(name_or_id.removeprefix("#")) or by_id.get(name_or_id)
    if item is None:
        raise ValueError(f"there is no {kind} {name_or_id}")
    return item
