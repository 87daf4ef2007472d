"""Faults that tests inject into the local provider and its resources."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chatrig.fault_queue import FaultKind, FaultQueue
from chatrig.oauth.grants import GrantStore, OAuthGrant


@dataclass(frozen=True, slots=True, eq=False)
class OAuthFault:
    """Fault of one request, compared by identity.

    Attributes:
        status, error: of a `fail`: the HTTP status and the value of `error`.
        seconds: of a `delay`: real seconds.
    """

    kind: FaultKind
    status: int = 500
    error: str = "server_error"
    seconds: float = 0


class OAuthFaults:
    """Faults of requests by path (`/token`, `/me`, `/mcp`), and of tokens that were issued.

    A request gets the first pending fault of its path.
    """

    def __init__(self, store: GrantStore) -> None:
        self._store = store
        self._pending = FaultQueue[OAuthFault]()

    def fail(self, path: str, times: int = 1, *, status: int = 500, error: str = "server_error") -> None:
        """Refuse the next `times` requests; a 401 of a resource has `WWW-Authenticate` with `invalid_token`."""
        self._pending.add([path], times, OAuthFault("fail", status=status, error=error))

    def delay(self, path: str, seconds: float, times: int = 1) -> None:
        """Run the next `times` requests after a delay in real seconds."""
        self._pending.add([path], times, OAuthFault("delay", seconds=seconds))

    def lose_response(self, path: str, times: int = 1) -> None:
        """Run the next `times` requests, but close their connections unanswered."""
        self._pending.add([path], times, OAuthFault("lose_response"))

    def set_token_lifetime(self, seconds: float) -> None:
        """Set the lifetime of new access tokens."""
        self._store.access_token_seconds = seconds

    def expire_access_tokens(self, user: str | None = None) -> None:
        """Expire the access tokens of a user, by name, or of all users; refresh tokens stay valid."""
        for grant in self._list_grants(user):
            grant.access_tokens.clear()

    def revoke_refresh_tokens(self, user: str | None = None) -> None:
        """Revoke the refresh tokens of a user, by name, or of all users; access tokens stay valid."""
        for grant in self._list_grants(user):
            grant.refresh_token = ""

    def revoke_grants(self, user: str | None = None) -> None:
        """Revoke all tokens of a user, by name, or of all users, as in the account settings of a provider."""
        for grant in self._list_grants(user):
            grant.revoke()

    def change_scopes(self, scopes: Iterable[str], user: str | None = None) -> None:
        """Replace the scopes of the grants of a user, by name, or of all users.

        It applies to the present tokens; the next refresh tells the client.
        """
        names = set(scopes)
        for grant in self._list_grants(user):
            grant.scopes = set(names)

    def clear(self) -> None:
        """Cancel all pending faults of requests."""
        self._pending.clear()

    def take(self, path: str) -> OAuthFault | None:
        """Remove and return the next fault of a path; None if it has none."""
        return self._pending.take(path)

    def _list_grants(self, user: str | None) -> Iterator[OAuthGrant]:
        return (grant for grant in self._store.grants if user in (None, grant.user.name))
