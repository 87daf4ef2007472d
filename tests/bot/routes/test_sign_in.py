"""Routes of sign-ins, attacked: forwarded, replayed and mixed-up links, other browsers, forged forms."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.monitoring.health import HealthMonitor
from bot.routes.sign_in import MAX_FORM_BYTES, SignInRoutes
from bot.server import run_server
from channels.discord.client.identity import DiscordIdentityProvider
from channels.slack.client.openid import SlackIdentityProvider
from chatrig.discord import DiscordSimulator
from chatrig.oauth import OAuthServer
from chatrig.slack import SlackSimulator
from core.errors import OtherPersonError, SignInLinkError
from core.inbox.store import InboxStore
from core.messages.identity import User
from core.privacy.vault import Vault
from core.sessions.agent_routing import AgentProfile, AgentRouter
from core.sessions.lifecycle import delete_session_data
from core.signin.browser import (
    CALLBACK_PATH,
    CREDENTIAL_PATH,
    IDENTITY_PATH,
    SIGN_IN_PATH,
    IdentityProvider,
    SignInFlow,
)
from core.signin.credentials import CredentialStore
from core.signin.oauth import OAuthClient
from core.signin.pending import PendingSignIns
from core.signin.target import Credential, CredentialKind, Person, SignInTarget
from core.store.database import Database
from core.store.schema import human_requests
from core.store.schema import vault as vault_table
from core.store.workers.lease import Lease
from core.tools.adk_requests import CredentialOwner, CredentialRequest
from core.tools.human_request_service import HumanRequestService
from core.tools.human_requests import HumanRequest
from core.turns.store import TurnStore
from core.turns.worker import Worker
from tests.fixtures.empty_databases import create_tables
from tests.fixtures.inbox_messages import inbound

KEY = "0123456789abcdef" * 4


@dataclass(frozen=True)
class Page:
    """Response that a browser shows, or whose redirect it follows."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def location(self) -> str:
        return self.headers.get("Location", "")


class Browser:
    """Browser of one person, with cookies for the bot's host; it follows no redirect by itself."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.cookies: dict[str, str] = {}

    async def open(self, url: str, method: str = "GET", **kwargs: Any) -> Page:
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        headers |= kwargs.pop("headers", {})
        async with self._session.request(method, url, headers=headers, allow_redirects=False, **kwargs) as response:
            for line in response.headers.getall("Set-Cookie", []):
                self.cookies |= {name: morsel.value for name, morsel in SimpleCookie(line).items()}
            return Page(response.status, await response.text(), dict(response.headers))


@dataclass
class Setup:
    """Bot with one open request of Ada, on one platform, for a service with OAuth.

    Attributes:
        ada: Ada's browser.
        grace: that of somebody else on the same platform.
        shown: the requests whose messages were updated.
    """

    url: str
    flow: SignInFlow
    identities: Mapping[str, IdentityProvider]
    requests: HumanRequestService
    request_id: str
    pending: PendingSignIns
    credentials: CredentialStore
    platform: SlackSimulator | DiscordSimulator
    service: OAuthServer
    target: SignInTarget
    database: Database
    user: User
    ada: Browser
    grace: Browser
    shown: list[HumanRequest]

    @property
    def person(self) -> Person:
        return Person.of(self.user)

    async def create_link(self) -> str:
        return await self.flow.create_link(self.request_id, self.user)

    async def begin(self, browser: Browser, link: str = "") -> str:
        """Open a link, and press the button; return the URL of the platform."""
        link = link or await self.create_link()
        assert (await browser.open(link)).status == 200
        page = await browser.open(link, "POST")
        assert page.status == 303, page.text
        return page.location

    async def confirm(self, browser: Browser, name: str = "ada") -> Page:
        """Confirm on the platform that the browser is a user's; return the page of the bot."""
        return await browser.open(await self.platform.sign_in(name, await self.begin(browser)))

    async def consent(self, browser: Browser) -> str:
        """Consent at the service, after the platform; return the redirect to the bot."""
        page = await self.confirm(browser)
        assert page.status == 303, page.text
        return await self.service.sign_in("ada", page.location)

    async def ask_for(self, target: SignInTarget) -> None:
        await self.pending.put(self.person, "place:1", "run", "call", target)

    async def ask_for_kind(self, kind: CredentialKind) -> SignInTarget:
        target = SignInTarget(credential_key="key", kind=kind, label="Weather")
        await self.ask_for(target)
        return target

    async def find_credential(self, target: SignInTarget | None = None) -> Credential | None:
        return await self.credentials.get(self.person, "app", target or self.target)

    async def get_verdict(self) -> str | None:
        request = await self.requests.get(self.request_id)
        assert request is not None
        return request.verdict

    async def update(self, table: sa.Table, condition: sa.ColumnElement[bool] | None = None, **values: object) -> None:
        update = sa.update(table).values(**values)
        async with self.database.write() as connection:
            await connection.execute(update if condition is None else update.where(condition))

    async def expire(self, names: str) -> None:
        """Let the vault's values expire whose names match a pattern."""
        await self.update(vault_table, vault_table.c.name.like(names), expires_at=1.0)


@pytest.fixture(params=["slack", "discord"])
async def setup(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Setup]:
    async with AsyncExitStack() as stack:
        database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
        stack.push_async_callback(database.aclose)
        await create_tables(database)
        server = await stack.enter_async_context(run_server(0, [], is_needed=True))
        url = f"http://127.0.0.1:{server.port}"
        service = await stack.enter_async_context(OAuthServer())
        oauth = OAuthClient(allows_private_hosts=True)
        platform: SlackSimulator | DiscordSimulator
        identity: IdentityProvider
        if request.param == "slack":
            platform = await stack.enter_async_context(SlackSimulator())
            app = platform.oauth
            identity = SlackIdentityProvider(platform.api_url, app.client_id, app.client_secret)
            user = User(platform.people["ada"].id, "Ada <b>", platform="slack", workspace=platform.team_id)
        else:
            platform = await stack.enter_async_context(DiscordSimulator())
            discord_app = platform.oauth
            identity = DiscordIdentityProvider(
                oauth, platform.api_url, discord_app.client_id, discord_app.client_secret
            )
            user = User(platform.people["ada"].id, "Ada <b>", platform="discord", workspace="7")
        platform.oauth.redirect_urls.add(url + IDENTITY_PATH)
        client = service.register_client(url + CALLBACK_PATH)
        target = SignInTarget(
            credential_key="key",
            kind=CredentialKind.OAUTH,
            label="Calendar",
            authorization_url=f"{service.url}/authorize",
            token_url=f"{service.url}/token",
            revocation_url=f"{service.url}/revoke",
            issuer=service.url,
            client_id=client.id,
            client_secret=client.secret,
            scopes=("calendar",),
        )
        vault = Vault(database, KEY)
        lease = Lease(database, seconds=30)
        await lease.acquire()
        turns = TurnStore(database, lease, AgentRouter("app", {"app": AgentProfile("app", ())}))
        worker = Worker(turns)
        requests = HumanRequestService(database, turns, worker)
        await InboxStore(database, turns, worker).accept(inbound(author=user.id))
        (turn,) = await turns.claim(1)
        owner = CredentialOwner(request.param, Person.of(user).workspace, user.id, "Calendar")
        (asked,) = await requests.save_answer(
            turn, "", {}, [CredentialRequest("run", "q1", "call", "list_events", "key", owner)]
        )
        await turns.end(turn, "done")
        pending = PendingSignIns(vault, seconds=3600)
        credentials = CredentialStore(database, vault, oauth)
        stack.push_async_callback(credentials.aclose)
        identities = {request.param: identity}
        flow = SignInFlow(vault, requests, pending, credentials, oauth=oauth, identities=identities, public_url=url)
        shown = list[HumanRequest]()
        server.add_routes(SignInRoutes(flow, shown.append, HealthMonitor(), public_url=url).routes)
        session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        setup = Setup(
            url,
            flow,
            identities,
            requests,
            asked.id,
            pending,
            credentials,
            platform,
            service,
            target,
            database,
            user,
            Browser(session),
            Browser(session),
            shown,
        )
        await setup.ask_for(target)
        yield setup


async def test_a_person_signs_in_once(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    callback = await setup.consent(setup.ada)
    page = await setup.ada.open(callback)
    assert page.status == 200, page.text
    assert "Calendar is connected" in page.text
    (sign_in,) = await setup.credentials.list_all()
    assert (sign_in.person, sign_in.app, sign_in.label) == (setup.person, "app", "Calendar")
    credential = await setup.find_credential()
    assert credential is not None
    assert [(request.id, request.verdict) for request in setup.shown] == [(setup.request_id, "connected")]
    again = await setup.ada.open(callback)
    assert (again.status, "Already connected" in again.text) == (410, True)
    assert await setup.find_credential() == credential


async def test_authorization_servers_read_the_client_document(setup: Setup) -> None:
    target = replace(setup.target, client_id=f"{setup.url}/oauth/client.json", client_secret="")
    await setup.ask_for(target)
    page = await setup.ada.open(await setup.consent(setup.ada))
    assert "Calendar is connected" in page.text


async def test_a_forwarded_link_connects_nobody(setup: Setup) -> None:
    page = await setup.confirm(setup.grace, "grace")
    assert page.status == 403
    assert "only for Ada &lt;b&gt;" in page.text
    assert await setup.find_credential() is None
    assert (await setup.confirm(setup.ada)).status == 303


async def test_reading_a_link_changes_nothing(setup: Setup) -> None:
    link = await setup.create_link()
    for method in ("GET", "HEAD", "GET"):
        page = await setup.grace.open(link, method)
        assert page.status == 200
    assert "Ada &lt;b&gt;" in page.text
    assert setup.grace.cookies == {}
    assert await setup.begin(setup.ada, link)


async def test_a_link_is_used_once(setup: Setup) -> None:
    link = await setup.create_link()
    pages = await asyncio.gather(*(setup.ada.open(link, "POST") for _ in range(5)))
    assert sorted(page.status for page in pages) == [303, 410, 410, 410, 410]
    assert (await setup.ada.open(link)).status == 410


async def test_a_new_link_voids_the_earlier_one_and_its_steps(setup: Setup) -> None:
    link = await setup.create_link()
    redirect = await setup.platform.sign_in("ada", await setup.begin(setup.ada))
    assert (await setup.ada.open(link)).status == 410
    await setup.create_link()
    assert (await setup.ada.open(redirect)).status == 410


@pytest.mark.parametrize("step", ["identity", "consent"])
async def test_two_callbacks_at_once_are_one(setup: Setup, step: str) -> None:
    if step == "identity":
        redirect = await setup.platform.sign_in("ada", await setup.begin(setup.ada))
    else:
        redirect = await setup.consent(setup.ada)
    pages = await asyncio.gather(*(setup.ada.open(redirect) for _ in range(5)))
    assert sorted(page.status for page in pages)[1:] == [410] * 4
    assert (await setup.find_credential() is not None) == (step == "consent")


async def test_another_browser_continues_no_step_and_uses_none_up(setup: Setup) -> None:
    for step in range(2):
        if step:
            redirect = await setup.consent(setup.ada)
        else:
            redirect = await setup.platform.sign_in("ada", await setup.begin(setup.ada))
        for cookies in ({}, {name: "x" * len(value) for name, value in setup.ada.cookies.items()}):
            setup.grace.cookies = cookies
            assert (await setup.grace.open(redirect)).status == 403
        assert (await setup.ada.open(redirect)).status in (200, 303)
    assert await setup.find_credential() is not None


async def test_a_state_fits_its_own_step_only(setup: Setup) -> None:
    platform = await setup.platform.sign_in("ada", await setup.begin(setup.ada))
    query = urlsplit(platform).query
    assert (await setup.ada.open(f"{setup.url}{CALLBACK_PATH}?{query}")).status == 410
    assert (await setup.ada.open(platform)).status == 303
    state = dict(parse_qsl(query))["state"]
    assert (await setup.ada.open(f"{setup.url}{SIGN_IN_PATH}{state}")).status == 410
    assert (await setup.ada.open(f"{setup.url}{SIGN_IN_PATH}{state}", "POST")).status == 410


async def test_a_code_of_another_sign_in_is_refused(setup: Setup) -> None:
    """Grace puts Ada's code, which she has stolen, into the redirect of her own browser."""
    stolen = dict(parse_qsl(urlsplit(await setup.platform.sign_in("ada", await setup.begin(setup.ada))).query))
    own = dict(parse_qsl(urlsplit(await setup.platform.sign_in("ada", await setup.begin(setup.grace))).query))
    url = f"{setup.url}{IDENTITY_PATH}?{urlencode({**own, 'code': stolen['code']})}"
    assert (await setup.grace.open(url)).status == 400


@pytest.mark.parametrize("iss", ["https://evil.example", "", None])
async def test_a_redirect_of_another_issuer_is_refused(setup: Setup, iss: str | None) -> None:
    redirect = urlsplit(await setup.consent(setup.ada))
    query = {name: value for name, value in parse_qsl(redirect.query) if name != "iss"}
    url = f"{setup.url}{CALLBACK_PATH}?{urlencode(query if iss is None else {**query, 'iss': iss})}"
    assert (await setup.ada.open(url)).status == 400
    assert await setup.find_credential() is None
    assert [record.path for record in setup.service.requests if record.path == "/token"] == []


async def test_a_person_who_declines_is_not_connected(setup: Setup) -> None:
    page = await setup.ada.open(await setup.platform.deny_sign_in(await setup.begin(setup.ada)))
    assert page.status == 400
    page = await setup.ada.open(await setup.service.deny((await setup.confirm(setup.ada)).location))
    assert page.status == 400
    assert await setup.find_credential() is None
    assert await setup.get_verdict() is None


@pytest.mark.parametrize("step", ["link", "button", "identity", "consent"])
@pytest.mark.parametrize("end", ["reset", "declined", "request expired", "link expired", "target expired"])
async def test_each_step_ends_with_its_request(setup: Setup, end: str, step: str) -> None:
    if step in ("link", "button"):
        url = await setup.create_link()
    elif step == "identity":
        url = await setup.platform.sign_in("ada", await setup.begin(setup.ada))
    else:
        url = await setup.consent(setup.ada)
    match end:
        case "reset":
            async with setup.database.write() as connection:
                await delete_session_data(connection, "place:1")
        case "declined":
            assert (await setup.requests.decide(setup.request_id, setup.user, "denied")).is_first
        case "request expired":
            await setup.update(human_requests, expires_at=1.0)
        case "link expired":
            await setup.expire("sign-in-link:%")
        case "target expired":
            await setup.expire("sign-in-request:%")
    assert (await setup.ada.open(url, "POST" if step == "button" else "GET")).status == 410
    assert await setup.find_credential() is None


async def test_a_decision_during_the_exchange_revokes_the_token(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = OAuthClient.exchange_code

    async def decide(self: OAuthClient, target: SignInTarget, **kwargs: str) -> Credential:
        credential = await exchange(self, target, **kwargs)
        await setup.requests.decide(setup.request_id, setup.user, "denied")
        return credential

    redirect = await setup.consent(setup.ada)
    monkeypatch.setattr(OAuthClient, "exchange_code", decide)
    assert (await setup.ada.open(redirect)).status == 410
    assert setup.service.requests[-1].path == "/revoke"
    assert await setup.find_credential() is None


async def test_a_credential_stays_if_the_response_to_its_commit_is_lost(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write_twice(self: Database, work: Callable[[AsyncConnection], Awaitable[Any]], *, operation: str) -> Any:
        for _ in range(2):
            async with self.write() as connection:
                result = await work(connection)
        return result

    redirect = await setup.consent(setup.ada)
    monkeypatch.setattr(Database, "write_with_retries", write_twice)
    assert (await setup.ada.open(redirect)).status == 200
    assert setup.service.requests[-1].path == "/token"
    assert await setup.find_credential() is not None


async def test_a_link_is_created_for_the_person_of_an_open_request_only(setup: Setup) -> None:
    for other in (replace(setup.user, id="U0"), replace(setup.user, platform="slack", workspace="T0")):
        with pytest.raises(OtherPersonError):
            await setup.flow.create_link(setup.request_id, other)
    with pytest.raises(SignInLinkError):
        await setup.flow.create_link("0" * 16, setup.user)
    await setup.requests.decide(setup.request_id, setup.user, "denied")
    with pytest.raises(SignInLinkError):
        await setup.create_link()


async def test_unknown_links_states_and_tokens_are_refused(setup: Setup) -> None:
    id_ = setup.request_id
    link = await setup.create_link()
    guess = link[:-1] + ("B" if link.endswith("A") else "A")
    for method in ("GET", "POST"):
        assert (await setup.ada.open(guess, method)).status == 410
    for path in ("x", "../secret", f"{id_}-", f"{id_}-{'x' * 44}", f"{id_}-%0d%0aX: y"):
        assert (await setup.ada.open(f"{setup.url}{SIGN_IN_PATH}{path}")).status == 404
    for state in ("", "x", "\0", f"{id_}-{'é' * 43}", "x" * 3000):
        for path in (IDENTITY_PATH, CALLBACK_PATH):
            url = f"{setup.url}{path}?{urlencode({'state': state, 'code': 'x'})}"
            assert (await setup.ada.open(url)).status == 410
            assert (await setup.ada.open(url, "POST")).status == 405
    assert await setup.begin(setup.ada, link)


async def test_an_api_key_is_typed_into_a_form_once(setup: Setup) -> None:
    target = await setup.ask_for_kind(CredentialKind.API_KEY)
    page = await setup.confirm(setup.ada)
    assert page.status == 200
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    fields = {"token": read_token(page), "secret": "  the-key ", "username": "ignored", "next": "https://evil.example"}
    pages = await asyncio.gather(*(setup.ada.open(setup.url + CREDENTIAL_PATH, "POST", data=fields) for _ in range(3)))
    assert sorted(each.status for each in pages) == [200, 410, 410]
    assert await setup.find_credential(target) == Credential(secret="the-key")
    assert not any("the-key" in each.text for each in pages)


async def test_a_name_and_password_are_typed_into_a_form(setup: Setup) -> None:
    target = await setup.ask_for_kind(CredentialKind.BASIC)
    page = await setup.confirm(setup.ada)
    fields = {"token": read_token(page), "secret": " pass word ", "username": " ada "}
    assert (await setup.ada.open(setup.url + CREDENTIAL_PATH, "POST", data=fields)).status == 200
    assert await setup.find_credential(target) == Credential(secret=" pass word ", username="ada")


async def test_a_form_of_another_site_or_browser_is_refused(setup: Setup) -> None:
    await setup.ask_for_kind(CredentialKind.API_KEY)
    token = read_token(await setup.confirm(setup.ada))
    url = setup.url + CREDENTIAL_PATH
    assert (await setup.ada.open(url, "POST", data={"secret": "x"})).status == 410
    assert (await setup.ada.open(url, "POST", data={"secret": "x", "token": token[:-1] + "!"})).status == 410
    assert (await setup.grace.open(url, "POST", data={"secret": "x", "token": token})).status == 403
    assert (await setup.ada.open(url, "POST", json={"secret": "x", "token": token})).status == 415
    assert (await setup.ada.open(url, "POST", data={"secret": "x" * MAX_FORM_BYTES, "token": token})).status == 413
    many = urlencode([("a", "b")] * 20)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await setup.ada.open(url, "POST", data=many, headers=form)).status == 400
    assert (await setup.ada.open(url, "POST", data=b"\xff=1", headers=form)).status == 400
    assert await setup.find_credential() is None
    assert (await setup.ada.open(url, "POST", data={"secret": "x", "token": token})).status == 200


async def test_an_invalid_field_shows_the_form_again(setup: Setup) -> None:
    await setup.ask_for_kind(CredentialKind.API_KEY)
    page = await setup.confirm(setup.ada)
    for secret in ("", "  ", "x" * 9000, "key\r\nX-Admin: 1", "key\0"):
        page = await setup.ada.open(
            setup.url + CREDENTIAL_PATH, "POST", data={"secret": secret, "token": read_token(page)}
        )
        assert page.status == 422
    fields = {"secret": "key", "token": read_token(page)}
    assert (await setup.ada.open(setup.url + CREDENTIAL_PATH, "POST", data=fields)).status == 200


async def test_pages_are_not_stored_framed_or_scripted(setup: Setup) -> None:
    link = await setup.create_link()
    pages = [await setup.ada.open(link), await setup.ada.open(link, "POST"), await setup.ada.open(link)]
    for page in pages:
        assert page.headers["Cache-Control"] == "no-store"
        assert page.headers["Referrer-Policy"] == "no-referrer"
        assert "<script" not in page.text
    for page in pages[::2]:
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    (cookie,) = SimpleCookie(pages[1].headers["Set-Cookie"]).values()
    assert cookie.key == f"parley-{setup.request_id}"  # Safari accepts it over HTTP
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"], cookie["path"]) == ("", True, "Lax", "/")


async def test_the_cookie_of_an_https_address_is_secure(setup: Setup) -> None:
    flow = SignInFlow(
        Vault(setup.database, KEY),
        setup.requests,
        setup.pending,
        setup.credentials,
        oauth=OAuthClient(),
        identities=setup.identities,
        public_url="https://bot.example",
    )
    async with run_server(0, [], is_needed=True) as server:
        server.add_routes(
            SignInRoutes(flow, setup.shown.append, HealthMonitor(), public_url="https://bot.example").routes
        )
        link = await flow.create_link(setup.request_id, setup.user)
        address = link.replace("https://bot.example", f"http://127.0.0.1:{server.port}")
        page = await setup.ada.open(address, "POST")
    (cookie,) = SimpleCookie(page.headers["Set-Cookie"]).values()
    assert cookie.key == f"__Host-parley-{setup.request_id}"
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, True, "Lax", "/")


async def test_nothing_secret_is_logged_or_stored_in_clear(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    link = await setup.create_link()
    platform_url = await setup.begin(setup.ada, link)
    identity = await setup.platform.sign_in("ada", platform_url)
    consent = (await setup.ada.open(identity)).location
    callback = await setup.service.sign_in("ada", consent)
    secrets = {link.rpartition("/")[2], *setup.ada.cookies.values()}
    for url in (identity, callback):
        query = dict(parse_qsl(urlsplit(url).query))
        secrets |= {query["code"], query["state"].partition("-")[2]}
    content = await asyncio.to_thread(Path(str(setup.database.file)).read_bytes)
    with caplog.at_level(logging.INFO):
        assert (await setup.ada.open(callback)).status == 200
        assert (await setup.ada.open(callback)).status == 410
        assert (await setup.ada.open(identity)).status == 410
        assert (await setup.ada.open(link, "POST")).status == 410
    assert not [secret for secret in secrets if secret in caplog.text or secret.encode() in content]


def read_token(page: Page) -> str:
    return page.text.partition('name="token" value="')[2].partition('"')[0]
