"""Conversion of vendors' errors to `ProviderError`, without the vendors' texts."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from math import isfinite
from time import time

from core.errors import (
    ModelNotFoundError,
    ProviderAuthError,
    ProviderError,
    ProviderRateLimitError,
    ProviderRequestError,
    ProviderUnavailableError,
)


@contextmanager
def convert_errors(to_provider_error: Callable[[Exception], ProviderError]) -> Iterator[None]:
    """Raise any exception of the block as a `ProviderError`: no vendor's SDK has one base class for its errors."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        raise to_provider_error(error) from error


@contextmanager
def convert_parse_error(provider: str, *, has_response: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Raise a `ProviderUnavailableError` if the block cannot parse a response.

    An error before the response has begun (`has_response`) is raised unchanged, since the request caused it. JSON with
    too many levels raises `RecursionError`.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        if not has_response():
            raise
        raise ProviderUnavailableError(f"{provider} sent a response that cannot be read") from error


def status_error(provider: str, model: str, status: int, *, retry_after: float | None = None) -> ProviderError:
    """Return the error for an HTTP status that is not 2xx; the provider asks to wait `retry_after` seconds."""
    if status in (401, 403):
        return ProviderAuthError(f"{provider} refused the key (HTTP {status})")
    if status == 404:
        return ModelNotFoundError(f"{provider} has no model {model!r} at this address and for this key")
    if status == 429:
        message = f"{provider} refuses requests over its rate limit (HTTP 429)"
        return ProviderRateLimitError(message, retry_after=retry_after)
    if status == 408 or status >= 500:
        message = f"{provider} could not answer (HTTP {status})"
        return ProviderUnavailableError(message, retry_after=retry_after)
    return ProviderRequestError(f"{provider} refused the request to {model!r} (HTTP {status})")


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait before a retry; the keys of the headers are in lower case, or of any case."""
    if (wait := _seconds(headers.get("retry-after-ms"))) is not None:
        return wait / 1000
    if (wait := _seconds(headers.get("retry-after"))) is not None:
        return wait
    with suppress(ValueError):
        if "retry-after" in headers:
            return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time())
    return None


def _seconds(text: str | None) -> float | None:
    with suppress(ValueError):
        wait = float(text or "")
        return max(0.0, wait) if isfinite(wait) else None
    return None
