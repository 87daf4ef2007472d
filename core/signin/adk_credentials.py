"""Conversion between ADK's configurations and credentials and those of a sign-in."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi.openapi.models import APIKey, HTTPBase, OAuth2
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, HttpAuth, HttpCredentials, OAuth2Auth
from google.adk.auth.auth_schemes import OpenIdConnectWithConfig
from google.adk.auth.auth_tool import AuthConfig

from core.errors import SignInError
from core.signin.target import Credential, CredentialKind, SignInTarget, host_label


def read_target(config: AuthConfig, client_secrets: Mapping[str, str]) -> SignInTarget:
    """Return the target of ADK's configuration of a credential.

    Raises:
        SignInError: it is of a kind that no person can complete.
    """
    key = config.credential_key or ""
    scheme = config.auth_scheme
    oauth = config.raw_auth_credential.oauth2 if config.raw_auth_credential else None
    match scheme:
        case OAuth2() if scheme.flows.authorizationCode is not None:
            flow = scheme.flows.authorizationCode
            urls = flow.authorizationUrl or "", flow.tokenUrl or "", ""
            scopes = tuple(flow.scopes or ())
        case OpenIdConnectWithConfig():
            urls = scheme.authorization_endpoint, scheme.token_endpoint, scheme.revocation_endpoint or ""
            scopes = tuple(scheme.scopes or ())
        case APIKey():
            label = scheme.description or f"API key {scheme.name}"
            return SignInTarget(credential_key=key, kind=CredentialKind.API_KEY, label=label)
        case HTTPBase() if scheme.scheme.lower() in ("basic", "bearer"):
            label = scheme.description or f"HTTP {scheme.scheme.lower()} authentication"
            return SignInTarget(credential_key=key, kind=CredentialKind(scheme.scheme.lower()), label=label)
        case _:
            raise SignInError(
                f"a person cannot sign in by {type(scheme).__name__}: use OAuth2 with the authorization code flow"
            )
    if not all(urls[:2]):
        raise SignInError("its scheme lacks the URL of the authorization or of the token")
    if oauth is None or not oauth.client_id:
        raise SignInError("its OAuth client has no client_id")
    authorization_url, token_url, revocation_url = urls
    host = host_label(authorization_url)
    return SignInTarget(
        credential_key=key,
        kind=CredentialKind.OAUTH,
        label=f"{scheme.description} at {host}" if scheme.description else host,
        authorization_url=authorization_url,
        token_url=token_url,
        revocation_url=revocation_url,
        client_id=oauth.client_id,
        client_secret=oauth.client_secret or client_secrets.get(oauth.client_id, ""),
        scopes=scopes,
        audience=oauth.audience or "",
        token_auth_method=oauth.token_endpoint_auth_method or "client_secret_basic",
    )


def to_adk_credential(target: SignInTarget, credential: Credential) -> AuthCredential:
    """Return a credential as ADK's tools use it: without a refresh token and an expiry, so that ADK never refreshes."""
    match target.kind:
        case CredentialKind.OAUTH:
            oauth = OAuth2Auth(access_token=credential.secret)
            return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth)
        case CredentialKind.API_KEY:
            return AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=credential.secret)
        case CredentialKind.BEARER:
            given = HttpCredentials(token=credential.secret)
        case CredentialKind.BASIC:
            given = HttpCredentials(username=credential.username, password=credential.secret)
    http = HttpAuth(scheme=target.kind.value, credentials=given)
    return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)


def is_credential(value: Any) -> bool:
    """Return whether a value of ADK's state is a credential."""
    has_type = isinstance(value, Mapping) and not {"auth_type", "authType"}.isdisjoint(value)
    return has_type or isinstance(value, AuthCredential)


def list_forms(credential: Credential) -> Iterator[str]:
    """Yield a secret as it passes through ADK, and in base64."""
    texts = [credential.secret]
    if credential.username:
        texts.append(f"{credential.username}:{credential.secret}")
    for text in texts:
        yield text
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(text.encode()).decode().rstrip("=")
