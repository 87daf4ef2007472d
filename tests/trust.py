"""The certificates of all authorities: each HTTP client of a model reads them anew, 40 ms of work."""

import ssl
from collections.abc import Callable
from functools import cache
from typing import Any

import httpcore2


def share(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """From now on, all clients share what the first one has read."""
    for module, name in ((ssl, "create_default_context"), (httpcore2, "default_ssl_context")):
        patch(module, name, cache(getattr(module, name)))
