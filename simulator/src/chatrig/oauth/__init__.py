"""Local OAuth 2.1 provider, with resources that need its tokens, for tests of sign-in."""

from chatrig.oauth.clients import OAuthClient
from chatrig.oauth.faults import OAuthFaults
from chatrig.oauth.grants import CalendarEvent, OAuthGrant, OAuthUser
from chatrig.oauth.server import OAuthRequestRecord, OAuthServer

__all__ = [
    "CalendarEvent",
    "OAuthClient",
    "OAuthFaults",
    "OAuthGrant",
    "OAuthRequestRecord",
    "OAuthServer",
    "OAuthUser",
]
