"""Sign-in in a browser: from the private link in the chat to the stored credential.

The platform must confirm that the browser belongs to the person of the link, or another person could lend them an
account: one opens the link of somebody else, and consents at the service with their own. Each request has one row in
the vault, with its next step and a token that is used once; a new link replaces the row, so that any process answers.
"""

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import OtherBrowserError, OtherPersonError, SettingsError, SignInDoneError, SignInLinkError
from core.messages.identity import User
from core.privacy.vault import Vault
from core.signin.credentials import CredentialStore
from core.signin.oauth import OAuthClient, check_redirect, new_verifier
from core.signin.pending import PendingSignIns
from core.signin.target import Credential, CredentialKind, Person, SignInTarget
from core.tools.human_request_service import HumanRequestService
from core.tools.human_requests import SignInRequest

SIGN_IN_PATH = "/sign-in/"
IDENTITY_PATH, CALLBACK_PATH, CREDENTIAL_PATH = (SIGN_IN_PATH + name for name in ("identity", "callback", "credential"))

#: Pattern of a token: the id of its request, and a random part.
TOKEN_PATTERN = "[0-9a-f]{16}-[A-Za-z0-9_-]{43}"  # noqa: S105 - a pattern, not a secret

#: Seconds until a link, and each step after it, expires.
STEP_SECONDS = 600.0

#: Characters of an API key, and of a name or a password.
MAX_FIELD_LENGTH = 8192

#: Prefix of the name of a cookie.
_COOKIE_PREFIX = "parley-"

#: RFC 6265bis: cookies with this prefix are set by this host only, over HTTPS.
_HOST_PREFIX = "__Host-"


class IdentityProvider(Protocol):
    """Sign-in with a platform, by which a browser proves who uses it.

    Attributes:
        label: the name of the platform for people.
    """

    label: str

    def create_authorization_url(
        self, person: Person, *, redirect_uri: str, state: str, verifier: str, nonce: str
    ) -> str: ...

    async def fetch_person(
        self, parameters: Mapping[str, str], *, redirect_uri: str, verifier: str, nonce: str
    ) -> Person:
        """Return the person who signed in, by the parameters of the redirect from the platform.

        Raises:
            SignInError: the person or the platform refuses it.
            SignInUnavailableError: the platform cannot be reached.
        """
        ...


class _Step(StrEnum):
    LINK = "link"
    IDENTITY = "identity"
    CONSENT = "consent"
    FORM = "form"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """Sign-in in a browser before its next step.

    Attributes:
        name: the name of the person.
        token: the random part of the token that permits the step.
        cookie: the value of the browser's cookie; empty before the link is used.
    """

    step: _Step
    person: Person
    name: str
    token: str = ""
    cookie: str = ""
    verifier: str = ""
    nonce: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "_Progress":
        return cls(**{**data, "step": _Step(data["step"]), "person": Person(**data["person"])})


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Facts for the page of a link.

    Attributes:
        service: the name of the service for people.
        platform: the name of the platform for people.
    """

    name: str
    service: str
    platform: str
    app_name: str


@dataclass(frozen=True, slots=True)
class Redirect:
    """Redirect of a browser, which first stores a cookie.

    Attributes:
        is_secure: whether the browser may send the cookie by HTTPS only.
    """

    url: str
    cookie_name: str = ""
    cookie: str = ""
    is_secure: bool = True


@dataclass(frozen=True, slots=True)
class CredentialForm:
    """Form for a credential that a person types.

    Attributes:
        token: the token that permits one submission.
    """

    token: str
    service: str
    kind: CredentialKind


@dataclass(frozen=True, slots=True)
class Connection:
    """A request whose credential is stored, with the names of service and platform for people."""

    request: SignInRequest
    service: str
    platform: str


class SignInFlow:
    """Steps of a sign-in in a browser.

    Each step raises `SignInLinkError` if its token is unknown, used or expired, or its request is not open any more;
    `SignInDoneError` after the account was connected, since people load pages again; and `OtherBrowserError` without
    the cookie of the browser that used the link.

    Args:
        identities: by the name of the platform. A platform without one has no sign-in.
        public_url: the address of the process for browsers, without a slash at its end: HTTPS, or loopback. Safari
            stores no secure cookies by HTTP, even from loopback (bugs.webkit.org/show_bug.cgi?id=281149).
    """

    def __init__(
        self,
        vault: Vault,
        requests: HumanRequestService,
        pending: PendingSignIns,
        credentials: CredentialStore,
        *,
        oauth: OAuthClient,
        identities: Mapping[str, IdentityProvider],
        public_url: str,
    ) -> None:
        self._vault = vault
        self._requests = requests
        self._pending = pending
        self._credentials = credentials
        self._oauth = oauth
        self._identities = identities
        self._public_url = public_url
        self._is_secure = public_url.startswith("https://")
        self._cookie_prefix = f"{_HOST_PREFIX if self._is_secure else ''}{_COOKIE_PREFIX}"

    def is_on(self, platform: str) -> bool:
        """Return whether people of a platform can sign in."""
        return platform in self._identities

    async def create_link(self, request_id: str, user: User) -> str:
        """Return a new private link for the person of a request; earlier links and their steps become void.

        Raises:
            SignInLinkError: the request is not open.
            OtherPersonError: the request is another person's.
        """
        request, _ = await self._get_open(request_id)
        if not request.may_decide(user):
            raise OtherPersonError(
                f"{user.id} asks for the link of request {request_id}", name="", platform=user.platform
            )
        token = await self._save(request_id, _Progress(step=_Step.LINK, person=Person.of(user), name=user.name))
        return f"{self._public_url}{SIGN_IN_PATH}{token}"

    async def get_confirmation(self, token: str) -> Confirmation:
        """Return the facts for the page of a link; nothing changes."""
        request_id, secret = _split(token)
        try:
            value = await self._vault.get(_name(request_id))
        except SettingsError:  # sealed with another SECRET_KEY
            value = None
        if value is None or not _is_step(value, _Step.LINK, secret):
            await self._get_open(request_id)  # its error may be that the account is connected
            raise SignInLinkError(f"request {request_id}: the link is used, void or expired")
        progress = _Progress.from_json(value)
        request, target = await self._get_open(request_id)
        platform = self._identities[progress.person.platform].label
        return Confirmation(progress.name, target.label, platform, request.app_name)

    async def begin(self, token: str) -> Redirect:
        """Use a link; return the redirect to the platform, and the cookie that binds the sign-in to the browser."""
        request_id, progress = await self._take(token, _Step.LINK, {})
        await self._get_open(request_id)
        cookie = secrets.token_urlsafe(32)
        progress = _renew(progress, _Step.IDENTITY, cookie=cookie)
        state = await self._save(request_id, progress)
        url = self._identities[progress.person.platform].create_authorization_url(
            progress.person,
            redirect_uri=self._public_url + IDENTITY_PATH,
            state=state,
            verifier=progress.verifier,
            nonce=progress.nonce,
        )
        return Redirect(url, self._cookie_prefix + request_id, cookie, self._is_secure)

    async def confirm_identity(
        self, parameters: Mapping[str, str], cookies: Mapping[str, str]
    ) -> Redirect | CredentialForm:
        """Check the browser's user on the platform; return the redirect to the service, or the form.

        Args:
            parameters: those of the platform's redirect.

        Raises:
            OtherPersonError: the user is not the person of the link.
            SignInError, SignInUnavailableError: see `IdentityProvider.fetch_person`.
        """
        request_id, progress = await self._take(parameters.get("state", ""), _Step.IDENTITY, cookies)
        _, target = await self._get_open(request_id)
        provider = self._identities[progress.person.platform]
        person = await provider.fetch_person(
            parameters,
            redirect_uri=self._public_url + IDENTITY_PATH,
            verifier=progress.verifier,
            nonce=progress.nonce,
        )
        if person != progress.person:
            raise OtherPersonError(
                f"{person.id} of workspace {person.workspace!r} uses the link of {progress.person.id}",
                name=progress.name,
                platform=provider.label,
            )
        if target.kind is not CredentialKind.OAUTH:
            return await self._create_form(request_id, progress, target)
        progress = _renew(progress, _Step.CONSENT)
        state = await self._save(request_id, progress)
        url = self._oauth.create_authorization_url(
            target,
            redirect_uri=self._public_url + CALLBACK_PATH,
            state=state,
            verifier=progress.verifier,
            nonce=progress.nonce,
        )
        return Redirect(url)

    async def finish(self, parameters: Mapping[str, str], cookies: Mapping[str, str]) -> Connection:
        """Exchange the code of a service's redirect for a credential, and store it with the decision.

        Raises:
            SignInError: the person or the service refuses it.
            SignInUnavailableError: the service cannot be reached.
        """
        request_id, progress = await self._take(parameters.get("state", ""), _Step.CONSENT, cookies)
        _, target = await self._get_open(request_id)
        credential = await self._oauth.exchange_code(
            target,
            code=check_redirect(target, parameters),
            redirect_uri=self._public_url + CALLBACK_PATH,
            verifier=progress.verifier,
        )
        try:
            return await self._complete(request_id, progress, target, credential)
        except SignInLinkError:
            await self._oauth.revoke(target, credential)
            raise

    async def submit_form(self, fields: Mapping[str, str], cookies: Mapping[str, str]) -> Connection | CredentialForm:
        """Store the credential in a form with the decision; return the form again if a field is invalid."""
        request_id, progress = await self._take(fields.get("token", ""), _Step.FORM, cookies)
        _, target = await self._get_open(request_id)
        has_username = target.kind is CredentialKind.BASIC
        username = fields.get("username", "").strip() if has_username else ""
        secret = fields.get("secret", "") if has_username else fields.get("secret", "").strip()
        values = (secret, username) if has_username else (secret,)
        if not all(0 < len(value) <= MAX_FIELD_LENGTH and value.isprintable() for value in values):
            return await self._create_form(request_id, progress, target)
        return await self._complete(request_id, progress, target, Credential(secret=secret, username=username))

    async def _create_form(self, request_id: str, progress: _Progress, target: SignInTarget) -> CredentialForm:
        token = await self._save(request_id, _renew(progress, _Step.FORM))
        return CredentialForm(token, target.label, target.kind)

    async def _complete(
        self, request_id: str, progress: _Progress, target: SignInTarget, credential: Credential
    ) -> Connection:
        request, _ = await self._get_open(request_id)
        was_saved = False

        async def save(connection: AsyncConnection) -> None:
            nonlocal was_saved
            was_saved = True
            await self._credentials.save(connection, progress.person, request.app_name, target, credential)

        person = progress.person
        user = User(person.id, progress.name, platform=person.platform, workspace=person.workspace)
        decided = await self._requests.complete_sign_in(request_id, save, user)
        # the transaction is repeated if the response to its commit is lost: then the request is decided already
        is_connected = was_saved and decided.request is not None and decided.request.verdict == "connected"
        if not isinstance(decided.request, SignInRequest) or not is_connected:
            raise SignInLinkError(f"request {request_id} was decided during the sign-in")
        return Connection(decided.request, target.label, self._identities[progress.person.platform].label)

    async def _get_open(self, request_id: str) -> tuple[SignInRequest, SignInTarget]:
        request = await self._requests.get(request_id)
        if isinstance(request, SignInRequest) and request.verdict == "connected":
            raise SignInDoneError(f"request {request_id} is done")
        is_open = isinstance(request, SignInRequest) and request.verdict is None and request.expires_at > time.time()
        if not isinstance(request, SignInRequest) or not is_open:
            raise SignInLinkError(f"request {request_id} is not open")
        owner = Person(request.owner.platform, request.owner.workspace, request.owner.person)
        target = await self._pending.get(owner, request.session_id, request.run, request.tool_call_id)
        if target is None or not self.is_on(owner.platform):
            raise SignInLinkError(f"request {request_id} has no target any more, or its platform no sign-in")
        return request, target

    async def _save(self, request_id: str, progress: _Progress) -> str:
        """Store the next step of a request, in place of any other, and return its token."""
        progress = replace(progress, token=secrets.token_urlsafe(32))
        await self._vault.put(_name(request_id), progress.to_json(), seconds=STEP_SECONDS)
        return f"{request_id}-{progress.token}"

    async def _take(self, token: str, step: _Step, cookies: Mapping[str, str]) -> tuple[str, _Progress]:
        """Return the request of a token and its progress, once."""
        request_id, secret = _split(token)
        cookie = cookies.get(self._cookie_prefix + request_id, "")

        def is_expected(value: Mapping[str, Any]) -> bool:
            if not _is_step(value, step, secret):
                return False
            if value["cookie"] and not _are_equal(value["cookie"], cookie):
                raise OtherBrowserError(f"request {request_id}: another browser has the step {step}")
            return True

        try:
            value = await self._vault.take(_name(request_id), is_expected)
        except SettingsError:
            value = None
        if value is None:
            await self._get_open(request_id)  # its error may be that the account is connected
            raise SignInLinkError(f"request {request_id}: the step {step} is used, void or expired")
        return request_id, _Progress.from_json(value)


def _name(request_id: str) -> str:
    return f"sign-in-link:{request_id}"


def _split(token: str) -> tuple[str, str]:
    if not re.fullmatch(TOKEN_PATTERN, token):
        raise SignInLinkError("this is no token of a sign-in")
    request_id, _, secret = token.partition("-")
    return request_id, secret


def _is_step(value: Mapping[str, Any], step: _Step, secret: str) -> bool:
    return value["step"] == step and _are_equal(value["token"], secret)


def _are_equal(first: str, second: str) -> bool:
    return secrets.compare_digest(first.encode(), second.encode(errors="replace"))


def _renew(progress: _Progress, step: _Step, *, cookie: str = "") -> _Progress:
    """Return the progress before another step, with a new verifier and nonce."""
    return replace(
        progress,
        step=step,
        cookie=cookie or progress.cookie,
        verifier=new_verifier(),
        nonce=secrets.token_urlsafe(32),
    )
