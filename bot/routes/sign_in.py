"""HTTP routes of sign-ins: the pages between the private link in the chat and the service.

A GET of a link changes nothing, since programs that preview links read it. No page has scripts or content of others,
and no code, state, token or credential is logged.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from urllib.parse import parse_qsl

from aiohttp import web

from bot.monitoring.health import HealthMonitor
from bot.server import read_body
from bot.settings.parsing import get_secret_value, is_loopback
from bot.settings.sign_in import SignInSection
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from core.errors import (
    OtherBrowserError,
    OtherPersonError,
    ParleyError,
    SignInDoneError,
    SignInError,
    SignInLinkError,
    SignInUnavailableError,
    StoreError,
)
from core.observability.secret_redaction import format_error
from core.signin.browser import (
    CALLBACK_PATH,
    CREDENTIAL_PATH,
    IDENTITY_PATH,
    MAX_FIELD_LENGTH,
    SIGN_IN_PATH,
    STEP_SECONDS,
    TOKEN_PATTERN,
    Connection,
    CredentialForm,
    IdentityProvider,
    Redirect,
    SignInFlow,
)
from core.signin.mcp import CLIENT_DOCUMENT_PATH, create_client_document
from core.signin.oauth import OAuthClient
from core.signin.target import CredentialKind
from core.tools.human_requests import HumanRequest

log = logging.getLogger(__name__)

_Handler = Callable[[web.Request, MessageCatalog], Awaitable[web.Response]]

#: Seconds until a page is shown; the exchange with a service may take 10 of them, and the database the rest.
PAGE_SECONDS = 30.0

#: Seconds until a browser forgets a sign-in: one for each of the steps after the link.
COOKIE_SECONDS = 3 * STEP_SECONDS

#: Fields of a submitted form: it has at most 3.
MAX_FIELDS = 8

#: Bytes of a submitted form, each of whose characters may take 3 or more.
MAX_FORM_BYTES = 65_536

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:28rem;padding:0 1rem;color:#1d1c1d}"
    "h1{font-size:1.4rem}label{display:block;margin:1rem 0}"
    "input{display:block;width:100%;box-sizing:border-box;font:inherit;padding:.4rem}"
    "button{font:inherit;padding:.5rem 1.5rem;border:0;border-radius:4px;background:#1a5fb4;color:#fff}"
)

_POLICY = (
    "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)

#: Policy of the page whose form is not redirected: Chrome applies `form-action` to redirects after a form, too.
_FORM_POLICY = f"{_POLICY}; form-action 'self'"

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}

#: Labels of the field for the secret.
_LABELS: Mapping[CredentialKind, str] = {
    CredentialKind.API_KEY: words.CREDENTIAL_API_KEY,
    CredentialKind.BEARER: words.CREDENTIAL_TOKEN,
    CredentialKind.BASIC: words.CREDENTIAL_PASSWORD,
}

#: Status of the page for an error; the first kind that matches counts.
_STATUSES: Mapping[type[Exception], int] = {
    SignInLinkError: 410,
    OtherBrowserError: 403,
    OtherPersonError: 403,
    SignInError: 400,
    SignInUnavailableError: 503,
    StoreError: 503,
    TimeoutError: 503,
}


class SignInRoutes:
    """Routes of sign-ins, at `SIGN_IN_PATH`.

    Args:
        show: called with each decided request, to update its message in the chat.
        public_url: the address of the process for browsers, without a slash at its end.
    """

    def __init__(
        self, flow: SignInFlow, show: Callable[[HumanRequest], object], health: HealthMonitor, *, public_url: str
    ) -> None:
        self._flow = flow
        self._client_document = create_client_document(public_url)
        self._show = show
        self._health = health

    @property
    def routes(self) -> Sequence[web.AbstractRouteDef]:
        link = f"{SIGN_IN_PATH}{{token:{TOKEN_PATTERN}}}"
        return [
            web.get(link, partial(self._respond, self._show_link)),
            web.post(link, partial(self._respond, self._begin)),
            web.get(IDENTITY_PATH, partial(self._respond, self._confirm_identity), allow_head=False),
            web.get(CALLBACK_PATH, partial(self._respond, self._finish), allow_head=False),
            web.post(CREDENTIAL_PATH, partial(self._respond, self._submit_form)),
            web.get(CLIENT_DOCUMENT_PATH, self._show_client_document),
        ]

    async def _show_client_document(self, _: web.Request) -> web.Response:
        """Tell authorization servers of MCP servers which redirect URI the bot has."""
        return web.json_response(self._client_document, headers={"X-Content-Type-Options": "nosniff"})

    async def _respond(self, handle: _Handler, request: web.Request) -> web.Response:
        say = _get_messages(request)
        if self._health.is_stopping:
            return _make_page(say, say(words.SERVICE_NOT_CONNECTED), say(words.PAGE_UNAVAILABLE), status=503)
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                return await handle(request, say)
        except Exception as error:
            status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)
            level = logging.ERROR if status == 500 else logging.INFO
            log.log(level, "a sign-in stops (%d): %s", status, format_error(error))
            facts = error.facts if isinstance(error, OtherPersonError) else {}
            sentence = error.public if isinstance(error, ParleyError) else words.PAGE_UNAVAILABLE
            title = words.ALREADY_CONNECTED if isinstance(error, SignInDoneError) else words.SERVICE_NOT_CONNECTED
            return _make_page(say, say(title), say(sentence, **facts), status=status)

    async def _show_link(self, request: web.Request, say: MessageCatalog) -> web.Response:
        about = await self._flow.get_confirmation(request.path.removeprefix(SIGN_IN_PATH))
        return _make_page(
            say,
            say(words.CONNECT_SERVICE_TITLE, service=about.service),
            say(words.CONNECT_SERVICE_USE, agent=about.app_name, service=about.service, name=about.name),
            say(words.CONNECT_SERVICE_CHECK, platform=about.platform, name=about.name),
            form=f'<form method="post"><button>{escape(say(words.CONTINUE_FORM))}</button></form>',
        )

    async def _begin(self, request: web.Request, _say: MessageCatalog) -> web.Response:
        return _redirect(await self._flow.begin(request.path.removeprefix(SIGN_IN_PATH)))

    async def _confirm_identity(self, request: web.Request, say: MessageCatalog) -> web.Response:
        step = await self._flow.confirm_identity(dict(request.query), request.cookies)
        return _redirect(step) if isinstance(step, Redirect) else _make_form(step, say)

    async def _finish(self, request: web.Request, say: MessageCatalog) -> web.Response:
        return self._show_connection(await self._flow.finish(dict(request.query), request.cookies), say)

    async def _submit_form(self, request: web.Request, say: MessageCatalog) -> web.Response:
        body = await read_body(request, MAX_FORM_BYTES)
        status = 413 if body is None else 415
        fields: dict[str, str] | None = None
        if body is not None and request.content_type == "application/x-www-form-urlencoded":
            status = 400
            with suppress(ValueError):
                fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
        if fields is None:
            return _make_page(say, say(words.SERVICE_NOT_CONNECTED), say(words.FORM_UNREADABLE), status=status)
        step = await self._flow.submit_form(fields, request.cookies)
        return self._show_connection(step, say) if isinstance(step, Connection) else _make_form(step, say, status=422)

    def _show_connection(self, connection: Connection, say: MessageCatalog) -> web.Response:
        self._show(connection.request)
        return _make_page(
            say,
            say(words.SERVICE_CONNECTED, service=connection.service),
            say(words.CLOSE_PAGE, platform=connection.platform),
        )


def _get_messages(request: web.Request) -> MessageCatalog:
    """Return the messages in the first language of the browser that is supported."""
    languages = request.headers.get("Accept-Language", "").split(",")
    return words.messages_for(":".join(language.partition(";")[0].strip() for language in languages))


def _make_form(form: CredentialForm, say: MessageCatalog, *, status: int = 200) -> web.Response:
    limit = f'autocomplete="off" required maxlength="{MAX_FIELD_LENGTH}"'
    fields = f'<input type="hidden" name="token" value="{escape(form.token)}">'
    if form.kind is CredentialKind.BASIC:
        fields += f'<label>{escape(say(words.CREDENTIAL_USER_NAME))} <input name="username" {limit}></label>'
    fields += f'<label>{escape(say(_LABELS[form.kind]))} <input type="password" name="secret" {limit}></label>'
    action = CREDENTIAL_PATH.removeprefix(SIGN_IN_PATH)  # relative: a proxy may add a path in front
    button = f"<button>{escape(say(words.CONTINUE_FORM))}</button>"
    return _make_page(
        say,
        say(words.CONNECT_SERVICE_TITLE, service=form.service),
        say(words.CREDENTIAL_USE),
        form=f'<form method="post" action="{action}">{fields}{button}</form>',
        status=status,
        policy=_FORM_POLICY,
    )


def _make_page(
    say: MessageCatalog, title: str, *paragraphs: str, form: str = "", status: int = 200, policy: str = _POLICY
) -> web.Response:
    """Return a page of plain texts and a form, which is HTML."""
    texts = "".join(f"<p>{escape(text)}</p>" for text in paragraphs)
    page = (
        f'<!doctype html><html lang="{say.language}"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>{texts}{form}</html>"
    )
    headers = {**_HEADERS, "Content-Security-Policy": policy}
    return web.Response(text=page, content_type="text/html", charset="utf-8", status=status, headers=headers)


def _redirect(step: Redirect) -> web.Response:
    response = web.Response(status=303, headers={**_HEADERS, "Location": step.url})
    if step.cookie:
        age = int(COOKIE_SECONDS)
        response.set_cookie(
            step.cookie_name, step.cookie, path="/", secure=step.is_secure, httponly=True, samesite="Lax", max_age=age
        )
    return response


def make_identities(settings: SignInSection) -> dict[str, IdentityProvider]:
    """Return the sign-in with each platform whose people can connect accounts, and import no other."""
    identities = dict[str, IdentityProvider]()
    if "slack" in settings.sign_in_platforms:
        from channels.slack.client.openid import SlackIdentityProvider  # noqa: PLC0415

        secret = get_secret_value(settings.slack_sign_in_client_secret) or ""
        identities["slack"] = SlackIdentityProvider(settings.slack_api_url, settings.slack_sign_in_client_id, secret)
    if "discord" in settings.sign_in_platforms and settings.discord is not None:
        from channels.discord.client.identity import DiscordIdentityProvider  # noqa: PLC0415
        from channels.discord.invite import application_id_of  # noqa: PLC0415

        id_ = str(application_id_of(settings.discord.bot_token))
        secret = get_secret_value(settings.discord_client_secret) or ""
        oauth = OAuthClient(allows_private_hosts=is_loopback(settings.discord_api_url))
        identities["discord"] = DiscordIdentityProvider(oauth, settings.discord_api_url, id_, secret)
    return identities
