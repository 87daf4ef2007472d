"""Secrets of sign-ins are nowhere in clear: not in the database, the logs, the traces, the exports and the prompts."""

import base64
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import aiohttp
import pytest
from aiohttp import web

from bot.monitoring import trace_export
from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest
from chatrig.oauth import OAuthServer
from chatrig.slack import SlackSimulator
from tests.acceptance.conftest import StartBot
from tests.processes.procfile import find_free_port
from tests.scenarios.chat import SlackChat, list_buttons, run_command
from tests.scenarios.requests.test_sign_in import Browser, get_link

AGENT = '''
import base64
import logging
import os

import httpx
from fastapi.openapi.models import APIKey, APIKeyIn, HTTPBase, OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools import FunctionTool, ToolContext
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.openapi_tool import OpenAPIToolset

service = os.environ["SERVICE_URL"]
flow = OAuthFlowAuthorizationCode(
    authorizationUrl=f"{service}/authorize", tokenUrl=f"{service}/token", scopes={"calendar": "Read", "profile": "Read"}
)
scheme = OAuth2(flows=OAuthFlows(authorizationCode=flow))


def create_credential(secret: str | None) -> AuthCredential:
    oauth = OAuth2Auth(client_id=os.environ["CLIENT_ID"], client_secret=secret)
    return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth)


config = AuthConfig(auth_scheme=scheme, raw_auth_credential=create_credential(None))


async def events(tool_context: ToolContext) -> object:
    """List events."""
    credential = tool_context.get_auth_response(config)
    if credential is None or credential.oauth2 is None:
        tool_context.request_credential(config)
        return {"status": "pending"}
    token = credential.oauth2.access_token
    logging.getLogger("tool").debug("a canary: token %s, in base64 %s", token, base64.b64encode(token.encode()))
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as client:
        answer = await client.get(f"{service}/calendar", params={"access_token": token})
    if answer.status_code == 401:
        tool_context.request_credential(config)
        return {"status": "pending"}
    tool_context.state["user:token"] = credential
    tool_context.state["temp:token"] = token
    sent = answer.request
    return {"bird": "a canary", "headers": dict(sent.headers), "url": str(sent.url), "credential": credential}


async def fails(tool_context: ToolContext) -> object:
    """Fails."""
    credential = tool_context.get_auth_response(config)
    if credential is None or credential.oauth2 is None:
        tool_context.request_credential(config)
        return {"status": "pending"}
    raise ValueError(f"refused: {credential.oauth2.access_token}")


async def by_key(credential: AuthCredential) -> object:
    """Use a key."""
    logging.getLogger("tool").debug("key %s", credential.api_key)
    return credential


async def by_password(credential: AuthCredential) -> object:
    """Use a password."""
    user = credential.http.credentials
    basic = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
    logging.getLogger("tool").debug("Authorization: %s; %s", basic, user.password)
    return {"basic": basic, "user": user}


key = APIKey.model_validate({"in": APIKeyIn.header, "name": "x-api-key"})
get = {"operationId": "me", "description": "Name the user.", "responses": {"200": {"description": "ok"}}}
spec = {"openapi": "3.0.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": service}]}
toolset = OpenAPIToolset(
    spec_dict={**spec, "paths": {"/me": {"get": get}}},
    auth_scheme=scheme,
    auth_credential=create_credential(os.environ["CLIENT_SECRET"]),
    allow_private_network_access=True,
)
root_agent = LlmAgent(
    name="agent",
    instruction="You act for people. {user:token?} {temp:token?}",
    tools=[
        FunctionTool(events),
        FunctionTool(fails),
        toolset,
        AuthenticatedFunctionTool(func=by_key, auth_config=AuthConfig(auth_scheme=key)),
        AuthenticatedFunctionTool(func=by_password, auth_config=AuthConfig(auth_scheme=HTTPBase(scheme="basic"))),
    ],
)
'''

#: What Ada types into the forms.
API_KEY, USER_NAME, PASSWORD = "ada's key/0 1+2=3", "ada@example.com", "pass wörd?/~0"

#: Parameters of OAuth whose values are secrets.
SECRET_PARAMETERS = {"access_token", "client_secret", "code", "code_verifier", "id_token", "refresh_token"}


class Secrets:
    """Secrets that the simulators send and receive, by their kind."""

    def __init__(self) -> None:
        self.found = dict[str, set[str]]()

    def add(self, kind: str, text: str) -> None:
        self.found.setdefault(kind, set()).add(text)

    def add_url(self, url: str) -> None:
        for name, value in parse_qsl(urlsplit(url).query):
            if name in ("code", "state", "nonce"):
                self.add(name, value.partition("-")[2] if name == "state" else value)

    def add_form(self, form: str) -> None:
        for name, value in parse_qsl(form):
            if name in SECRET_PARAMETERS:
                self.add(name, value)

    def list_forms(self) -> Iterator[tuple[str, bytes]]:
        """Yield the forms of each secret, with its kind."""
        for kind, texts in self.found.items():
            for text in texts:
                plain = text.encode()
                yield from ((kind, form) for form in (plain, quote(text, safe="").encode()))
                for encode in (base64.b64encode, base64.urlsafe_b64encode):
                    yield kind, encode(plain).rstrip(b"=")

    def find(self, content: bytes) -> set[tuple[str, bytes]]:
        return {(kind, form) for kind, form in self.list_forms() if form in content}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch, slack: SlackSimulator) -> Secrets:
    """Return the secrets that are in the HTTP requests to the simulators and in their answers."""
    secrets = Secrets()
    read, json_response = web.BaseRequest.read, web.json_response

    async def read_and_record(request: web.BaseRequest) -> bytes:
        body = await read(request)
        if request.path.endswith(("/token", "/revoke", "openid.connect.token")):
            secrets.add_form(body.decode())
            scheme, _, value = request.headers.get("Authorization", "").partition(" ")
            if scheme == "Basic":
                secrets.add("client_secret", unquote(base64.b64decode(value).decode().partition(":")[2]))
        return body

    def respond_and_record(data: Any = None, **kwargs: Any) -> web.Response:
        for name in SECRET_PARAMETERS & data.keys() if isinstance(data, dict) else ():
            secrets.add(name, str(data[name]))
        return json_response(data, **kwargs)

    monkeypatch.setattr(web.BaseRequest, "read", read_and_record)
    monkeypatch.setattr(web, "json_response", respond_and_record)
    return secrets


@pytest.fixture
async def service() -> AsyncIterator[OAuthServer]:
    async with OAuthServer() as service:
        yield service


@pytest.fixture
async def collector() -> AsyncIterator[tuple[bytearray, str]]:
    """Yield the bytes of the exported traces, and the address to which they are sent."""
    traces = bytearray()

    async def take(request: web.Request) -> web.Response:
        traces.extend(await request.read())
        return web.Response()

    app = web.Application()
    app.add_routes([web.post("/v1/traces", take)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield traces, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


class Ada:
    """Ada in Slack, with her browser."""

    def __init__(self, slack: SlackSimulator, service: OAuthServer, session: aiohttp.ClientSession, secrets: Secrets):
        self.chat = SlackChat(slack)
        self._slack = slack
        self._service = service
        self._session = session
        self._secrets = secrets
        self._links = list[str]()

    async def use(self, tool: str, *, asks: bool) -> None:
        """Let the bot use a tool, and sign in if it asks for that."""
        before = len(self.chat.list_replies())
        await self.chat.say(f"use {tool}")
        if asks:
            await self._slack.wait_for(lambda: any(words.CONNECT in labels for labels in list_buttons(self.chat)))
            await self._sign_in()
        await self._slack.wait_for(lambda: any("Result: " in m.text for m in self.chat.list_replies()[before:]))

    async def _sign_in(self) -> None:
        browser = Browser(self._session)
        link = await get_link(self.chat, *self._links)
        self._links.append(link)
        _, platform_url = await browser.open(link, "POST")
        identity = await self._slack.sign_in("ada", platform_url)
        status, page = await browser.open(identity)
        urls = [platform_url, identity]
        if status == 303:
            urls += [page, await self._service.sign_in("ada", page)]
            status, page = await browser.open(urls[-1])
        else:
            (token,) = re.findall('name="token" value="([^"]+)"', page)
            self._secrets.add("form", token.partition("-")[2])
            is_password = "username" in page
            fields = {"token": token, "secret": PASSWORD if is_password else API_KEY, "username": USER_NAME}
            cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in browser._cookies.items())}
            credential = urlsplit(link)._replace(path="/sign-in/credential").geturl()
            async with self._session.post(credential, data=fields, headers=cookies) as response:
                status, page = response.status, await response.text()
        assert (status, "is connected" in page) == (200, True), page
        self._secrets.add("link", link.rpartition("-")[2])
        for value in browser._cookies.values():
            self._secrets.add("cookie", value)
        for url in urls:
            self._secrets.add_url(url)


async def test_no_secret_of_a_sign_in_is_anywhere_in_clear(
    start: StartBot,
    slack: SlackSimulator,
    service: OAuthServer,
    secrets: Secrets,
    collector: tuple[bytearray, str],
    tmp_path: Path,
) -> None:
    traces, address = collector
    port = find_free_port()
    url = f"http://127.0.0.1:{port}"
    client = service.register_client(f"{url}/sign-in/callback")
    slack.oauth.redirect_urls.add(f"{url}/sign-in/identity")
    (tmp_path / "brought").mkdir()
    (tmp_path / "brought" / "agent.py").write_text(AGENT)
    bot = await start(
        AGENT=str(tmp_path / "brought"),
        SERVICE_URL=service.url,
        CLIENT_ID=client.id,
        CLIENT_SECRET=client.secret,
        SIGN_IN_CLIENT_SECRETS=json.dumps({client.id: client.secret}),
        SLACK_SIGN_IN_CLIENT_ID=slack.oauth.client_id,
        SLACK_SIGN_IN_CLIENT_SECRET=slack.oauth.client_secret,
        SLACK_STREAMING="edit",
        SECRET_KEY="0123456789abcdef" * 4,
        PUBLIC_URL=url,
        PORT=str(port),
        LOG_LEVEL="DEBUG",
        KEEP_PROMPTS_DAYS="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=address,
        OTEL_BSP_SCHEDULE_DELAY="200",
        SHUTDOWN_TIMEOUT_SECONDS="1",
        OTEL_SEMCONV_STABILITY_OPT_IN="gen_ai_latest_experimental",
        OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY",
        **{trace_export.CAPTURE_VARIABLE: "true"},
    )
    prompts = bytearray()

    def answer(request: ReceivedRequest) -> Any:
        prompts.extend(json.dumps(request.body).encode())
        if request.tool_results:
            return f"Result: {request.tool_results[-1].content}"
        return CallTool(re.findall(r"use (\w+)", request.text)[-1])

    bot.answer = answer
    secrets.add("password", PASSWORD)
    secrets.add("user and password", f"{USER_NAME}:{PASSWORD}")
    secrets.add("key", API_KEY)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        ada = Ada(slack, service, session, secrets)
        stored = b""
        for tool in ("events", "me", "by_key", "by_password"):
            await ada.use(tool, asks=True)
            stored += read_files(tmp_path, "*.db*")
        service.faults.expire_access_tokens()
        await ada.use("events", asks=False)
        await ada.use("fails", asks=False)
        service.faults.revoke_grants()
        await ada.use("events", asks=True)
        shown = await export(ada.chat)
        await disconnect(ada.chat, "127.0.0.1")
        stored += read_files(tmp_path, "*.db*")
        assert await run_command(ada.chat, "reset") == words.RESET_DONE
    stored += read_files(tmp_path, "*.db*")
    await bot.program.stop()
    stored += read_files(tmp_path, "*.db*")
    logged = read_files(tmp_path, "*.log")

    assert secrets.found.keys() >= {*SECRET_PARAMETERS, "link", "cookie", "state", "nonce", "form", "key", "password"}
    assert len(secrets.found["code_verifier"]) == 3
    for content in map(bytes, (stored, logged, traces, shown, prompts)):
        assert b"a canary" in content
        assert secrets.find(content) == set()
    assert all(secrets.find(form) for _, form in secrets.list_forms())


def read_files(folder: Path, pattern: str) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob(pattern))


async def export(chat: SlackChat) -> bytes:
    """Export the conversation, and return the files that Ada gets in her DM."""
    assert await run_command(chat, "export", "json") == words.SENT_AS_DM
    direct = SlackChat(chat.simulator)
    await direct.open_dm("ada")
    files = await chat.simulator.wait_for(direct.list_files)
    return b"".join(data for _, data in files)


async def disconnect(chat: SlackChat, service: str) -> None:
    """Disconnect Ada's first account."""
    await run_command(chat, "connections")
    label = f"{words.DISCONNECT} 1"
    message = next(m for m in chat.list_bot_messages() if label in m.buttons)
    await chat.simulator.click_button("ada", message, message.buttons[label])
    await chat.simulator.wait_for(lambda: words.DISCONNECTED.format(service=service) in chat.list_private_messages())
