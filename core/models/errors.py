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
    """Raise an exception of the block as a `ProviderError`.

    Every exception is converted, because no vendor's SDK has one base class for its errors.

    Args:
        to_provider_error: returns the error to raise for an exception that is not a `ProviderError`.
    """
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        raise to_provider_error(error) from error


@contextmanager
def convert_parse_error(provider: str, *, has_response: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Raise a `ProviderUnavailableError` if the block cannot parse a response.

    It replaces `ValueError`, `TypeError`, `LookupError`, `AttributeError` and `RecursionError` (of JSON with too many
    levels). Other errors are raised unchanged.

    Args:
        provider: the name of the provider.
        has_response: returns whether the response has begun. An error before is raised unchanged, since the request
            caused it.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        if not has_response():
            raise
        raise ProviderUnavailableError(f"{provider} sent a response that cannot be read") from error


def status_error(provider: str, model: str, status: int, *, retry_after: float | None = None) -> ProviderError:
    """Return the error for a response with an HTTP status that is not 2xx.

    Args:
        provider: the name of the provider.
        model: the model's name at the vendor.
        retry_after: seconds that the provider asks to wait; None if it asks for none.

    Returns:
        `ProviderAuthError` for 401 and 403, `ModelNotFoundError` for 404, `ProviderRateLimitError` for 429,
        `ProviderUnavailableError` for 408 and from 500, and `ProviderRequestError` for any other status.
    """
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
    """Return the seconds to wait before a retry, from the HTTP headers of a response.

    `retry-after-ms` is preferred to `retry-after`, which is a number of seconds or a date.

    Args:
        headers: the headers, with keys in lower case or without regard to case.

    Returns:
        The seconds, at least 0; None without a readable header.
    """
    if (wait := _seconds(headers.get("retry-after-ms"))) is not None:
        return wait / 1000
    if (wait := _seconds(headers.get("retry-after"))) is not None:
        return wait
    with suppress(ValueError):
        if "retry-after" in headers:
            return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time())
    return None


def _seconds(text: str | None) -> float | None:
    """Return the number in a text, at least 0; None if it is no finite number."""
    with suppress(ValueError):
        wait = float(text or "")
        return max(0.0, wait) if isfinite(wait) else None
    return None
