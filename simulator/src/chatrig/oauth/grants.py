"""Grants of users to clients, with their tokens: expiry, rotation of refresh tokens, and revocation.

A refresh token is valid once. A second use revokes its grant with all tokens (OAuth 2.1, section 4.3.1).
"""

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from time import time

from chatrig.oauth.authorization import AuthorizationRequest
from chatrig.oauth.clients import OAuthError


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """Event in a user's calendar."""

    title: str
    starts_at: datetime


@dataclass(eq=False, slots=True)
class OAuthUser:
    """User of the local provider."""

    id: str
    name: str
    email: str
    events: list[CalendarEvent] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class OAuthGrant:
    """Grant of a user to a client: the family of all tokens from one sign-in.

    Attributes:
        scopes: the granted scopes; a change applies to tokens at once.
        access_tokens: the time of expiry, in seconds since the epoch, by token.
        refresh_token: the valid one; "" before the first exchange, and after a revocation.
        used_refresh_tokens: refresh tokens that were exchanged.
        is_revoked: whether all tokens are invalid.
    """

    request: AuthorizationRequest
    user: OAuthUser
    scopes: set[str]
    access_tokens: dict[str, float] = field(default_factory=dict)
    refresh_token: str = ""
    used_refresh_tokens: set[str] = field(default_factory=set)
    is_revoked: bool = False

    @property
    def client_id(self) -> str:
        return self.request.client_id

    def revoke(self) -> None:
        self.is_revoked = True
        self.access_tokens.clear()
        self.refresh_token = ""


class GrantStore:
    """All grants of the provider.

    Attributes:
        grants: grants with an exchanged code, in order, the revoked ones too.
        access_token_seconds: the lifetime of new access tokens.
    """

    def __init__(self) -> None:
        self.grants: list[OAuthGrant] = []
        self.access_token_seconds = 3_600.0

    def issue_tokens(self, grant: OAuthGrant) -> dict[str, str | int]:
        """Add an access token to a grant and replace its refresh token; return the token response."""
        if grant not in self.grants:
            self.grants.append(grant)
        access_token = secrets.token_urlsafe(24)
        grant.access_tokens[access_token] = time() + self.access_token_seconds
        grant.refresh_token = secrets.token_urlsafe(24)
        return {
            "access_token": access_token,
            "token_type": "Bearer",
            "expires_in": int(self.access_token_seconds),
            "refresh_token": grant.refresh_token,
            "scope": " ".join(sorted(grant.scopes)),
        }

    def refresh_tokens(self, client_id: str, token: str) -> dict[str, str | int]:
        """Exchange a refresh token for new tokens.

        Raises:
            OAuthError: `invalid_grant`. If the token was used before, its grant is revoked.
        """
        for grant in self.grants:
            if grant.client_id != client_id or not token:
                continue
            if token in grant.used_refresh_tokens:
                grant.revoke()
            elif token == grant.refresh_token:
                grant.used_refresh_tokens.add(token)
                return self.issue_tokens(grant)
        raise OAuthError("invalid_grant", "The refresh token is unknown, used or revoked.")

    def revoke_token(self, client_id: str, token: str) -> None:
        """Revoke an access token, or with a refresh token the whole grant (RFC 7009)."""
        for grant in self.grants:
            if grant.client_id != client_id:
                continue
            grant.access_tokens.pop(token, None)
            if token and token == grant.refresh_token:
                grant.revoke()

    def find_grant(self, access_token: str) -> OAuthGrant | None:
        """Return the grant of a valid access token; None for an unknown, expired or revoked one."""
        for grant in self.grants:
            if grant.access_tokens.get(access_token, 0.0) > time():
                return grant
        return None
