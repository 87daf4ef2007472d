"""Models that may be asked."""

from typing import NamedTuple

from core.models.provider import Provider


class Offered(NamedTuple):
    """A model that may be asked: its provider, and the name that it has there."""

    provider: Provider
    model: str
