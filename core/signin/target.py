"""Targets of a sign-in: the service, and the credential that a tool needs from a person there."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self
from urllib.parse import urlsplit

from core.messages.identity import User


class CredentialKind(StrEnum):
    """Kinds of credentials of a person.

    Attributes:
        API_KEY: a key that the person types.
        BEARER: a token that the person types, for the header `Authorization: Bearer`.
        BASIC: a name and a password that the person types, for HTTP Basic authentication.
    """

    OAUTH = "oauth"
    API_KEY = "api_key"
    BEARER = "bearer"
    BASIC = "basic"


@dataclass(frozen=True, slots=True)
class Person:
    """Person on a platform, as the owner of credentials.

    Attributes:
        workspace: the id of the Slack workspace; empty on Discord, where an account belongs to no server.
    """

    platform: str
    workspace: str
    id: str

    @classmethod
    def of(cls, user: User) -> Self:
        return cls(user.platform, user.workspace if user.platform == "slack" else "", user.id)

    def __str__(self) -> str:
        return f"{self.platform}/{self.workspace}/{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInTarget:
    """Service at which a person signs in, and the credential that a tool needs there.

    Attributes:
        credential_key: ADK's key of the credential.
        label: the name of the service for people.
        issuer: the `iss` that the authorization response must have (RFC 9207); empty if the server sends none.
        added_scopes: scopes that a person is asked for in addition, since a call needed them. They are not in the
            fingerprint: the new sign-in replaces the former one.
        resource: the URL of the protected resource (RFC 8707); empty for none.
        token_auth_method: RFC 7591's `token_endpoint_auth_method`; without `client_secret` it is `none`.
    """

    credential_key: str
    kind: CredentialKind
    label: str
    authorization_url: str = ""
    token_url: str = ""
    revocation_url: str = ""
    issuer: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    added_scopes: tuple[str, ...] = ()
    resource: str = ""
    audience: str = ""
    token_auth_method: str = "client_secret_basic"  # noqa: S105 - a method, not a secret

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides which server gets the credential, and what it permits, in hexadecimal.

        Two tools may have the same `credential_key` by chance or by intent: a credential is only used for the target
        for which it was given.
        """
        decisive = (
            self.kind,
            self.label if self.kind is not CredentialKind.OAUTH else "",
            self.authorization_url,
            self.token_url,
            self.client_id,
            sorted(self.scopes),
            self.resource,
            self.audience,
        )
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        scopes = {name: tuple(data.get(name, ())) for name in ("scopes", "added_scopes")}
        return cls(**{**data, **scopes, "kind": CredentialKind(data["kind"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Credential of a person for a target: tokens of a service, an API key, or a name and a password.

    Attributes:
        secret: the access token, the API key, the bearer token or the password.
        username: of HTTP Basic authentication only.
        expires_at: when the access token expires; None if the server does not say so.
        scopes: the granted scopes.
        account: the name of the person's account at the service, if known.
    """

    secret: str = field(repr=False)
    username: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    expires_at: float | None = None
    scopes: tuple[str, ...] = ()
    account: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "scopes": tuple(data["scopes"])})


def host_label(url: str) -> str:
    """Return the host of a URL, as the name of a service without a better one."""
    return urlsplit(url).hostname or url
