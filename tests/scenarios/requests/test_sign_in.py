"""Sign-in: a tool acts as the person who asked, after that person has connected an account in a browser."""

import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from http.cookies import SimpleCookie
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.openapi_tool import OpenAPIToolset
from google.adk.tools.tool_context import ToolContext

from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest
from chatrig.oauth import OAuthServer
from chatrig.slack import SlackSimulator
from docs.pictures.signin import read_examples
from tests.processes.procfile import find_free_port
from tests.scenarios.chat import Chat, list_buttons, list_texts, wait_for_texts
from tests.scenarios.conftest import StartBot

#: The tool of the guide, in a module that a fixture makes.
GUIDE_TOOL = "calendar_of_the_guide:events"

#: Configuration of the calendar's account, and the URL of its resource; each test sets its own.
calendar: dict[str, Any] = {}


async def list_events(tool_context: ToolContext) -> Any:
    """List the calendar's events."""
    credential = tool_context.get_auth_response(calendar["config"])
    if credential is None or credential.oauth2 is None:
        tool_context.request_credential(calendar["config"])
        return {"status": "pending"}
    headers = {"Authorization": f"Bearer {credential.oauth2.access_token}"}
    async with aiohttp.ClientSession() as session, session.get(calendar["url"], headers=headers) as response:
        return await response.text()


def answer(request: ReceivedRequest) -> Any:
    return f"Result: {request.tool_results[-1].content}" if request.tool_results else CallTool("list_events")


class Browser:
    """Browser that follows no redirect by itself."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._cookies: dict[str, str] = {}

    async def open(self, url: str, method: str = "GET", form: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Return the status, and the address of a redirect or the text of a page."""
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items())}
        async with self._session.request(method, url, data=form, headers=headers, allow_redirects=False) as response:
            for line in response.headers.getall("Set-Cookie", []):
                self._cookies |= {name: morsel.value for name, morsel in SimpleCookie(line).items()}
            return response.status, response.headers.get("Location") or await response.text()


@pytest.fixture
async def service() -> AsyncIterator[OAuthServer]:
    async with OAuthServer() as service:
        yield service


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Browser(session)


@pytest.fixture
def settings(simulator: Any) -> dict[str, Any]:
    """Settings with which people of the platform can connect accounts."""
    url = f"http://127.0.0.1:{(port := find_free_port())}"
    simulator.oauth.redirect_urls.add(f"{url}/sign-in/identity")
    settings: dict[str, Any] = {"public_url": url, "port": port, "secret_key": "0123456789abcdef" * 4}
    if isinstance(simulator, SlackSimulator):
        settings["slack_sign_in_client_id"] = simulator.oauth.client_id
        settings["slack_sign_in_client_secret"] = simulator.oauth.client_secret
    else:
        settings["discord_client_secret"] = simulator.oauth.client_secret
    return settings


def create_scheme(service: OAuthServer) -> OAuth2:
    flow = OAuthFlowAuthorizationCode(
        authorizationUrl=f"{service.url}/authorize", tokenUrl=f"{service.url}/token", scopes={"calendar": "Read it"}
    )
    return OAuth2(flows=OAuthFlows(authorizationCode=flow))


@pytest.fixture
def run(start: StartBot, settings: dict[str, Any], service: OAuthServer) -> AbstractAsyncContextManager[Chat]:
    """Return the bot with sign-in and a tool that needs it."""
    client = service.register_client(f"{settings['public_url']}/sign-in/callback")
    calendar["config"] = AuthConfig(
        auth_scheme=create_scheme(service),
        raw_auth_credential=AuthCredential(
            auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id=client.id)
        ),
    )
    calendar["url"] = f"{service.url}/calendar"
    return start(
        answer,
        **settings,
        sign_in_client_secrets={client.id: client.secret},
        tools=("tests.scenarios.requests.test_sign_in:list_events",),
    )


def list_urls(part: Any) -> list[str]:
    """Return the addresses that buttons in some JSON open."""
    if isinstance(part, dict):
        return [part["url"]] if part.get("url") else list_urls(list(part.values()))
    return [url for each in part for url in list_urls(each)] if isinstance(part, list | tuple) else []


async def get_link(chat: Chat, *known: str) -> str:
    """Press *Connect* as Ada, and return the address of the private button that is not known yet."""

    def find() -> list[str]:
        parts = [getattr(message, "blocks", None) or message.content.components for message in chat.list_bot_messages()]
        return [url for url in list_urls(parts) if url not in known]

    await chat.press(words.CONNECT)
    (link,) = await chat.simulator.wait_for(find)
    return str(link)


async def test_a_tool_gets_the_account_that_its_person_connects(
    run: AbstractAsyncContextManager[Chat], simulator: Any, service: OAuthServer, browser: Browser
) -> None:
    async with run as chat:
        await chat.say("my events?")
        await chat.simulator.wait_for(lambda: any(words.CONNECT in labels for labels in list_buttons(chat)))
        link = await get_link(chat)
        assert (await browser.open(link))[0] == 200
        _, platform_url = await browser.open(link, "POST")
        status, page = await browser.open(await simulator.sign_in("grace", platform_url))
        assert (status, "link is only for" in page) == (403, True)

        link = await get_link(chat, link)
        _, platform_url = await browser.open(link, "POST")
        _, service_url = await browser.open(await simulator.sign_in("ada", platform_url))
        status, page = await browser.open(await service.sign_in("ada", service_url))
        assert (status, "is connected" in page) == (200, True), page
        texts = await wait_for_texts(chat, lambda found: any("Result: " in text for text in found))
        assert any("ada" in text.lower() for text in texts if "Result: " in text), texts
        await chat.simulator.wait_for(lambda: any("Connected by" in text for text in list_texts(chat)))

        await chat.say("again?", user="ada")
        await wait_for_texts(chat, lambda found: len([text for text in found if "Result: " in text]) == 2)


def answer_by_server(request: ReceivedRequest) -> Any:
    """Connect the server of the calendar, or list its events."""
    if any("Meeting of" in str(result.content) for result in request.tool_results):
        return f"Result: {request.tool_results[-1].content}"
    return CallTool("connect_box" if "connect_box" in request.tools else "box_list_events")


async def test_an_mcp_server_gets_the_account_that_its_person_connects(
    start: StartBot,
    settings: dict[str, Any],
    simulator: Any,
    service: OAuthServer,
    browser: Browser,
    tmp_path: Path,
) -> None:
    (tmp_path / "servers.toml").write_text(f'[box]\nurl = "{service.mcp_url}"\nauth = "oauth"\n')
    async with start(answer_by_server, **settings, mcp_file=tmp_path / "servers.toml") as chat:
        await chat.say("my events?")
        await chat.simulator.wait_for(lambda: any(words.CONNECT in labels for labels in list_buttons(chat)))
        _, platform_url = await browser.open(await get_link(chat), "POST")
        _, service_url = await browser.open(await simulator.sign_in("ada", platform_url))
        status, page = await browser.open(await service.sign_in("ada", service_url))
        assert (status, "is connected" in page) == (200, True), page
        await wait_for_texts(chat, lambda found: any("Meeting of ada" in text for text in found))
    assert [client.redirect_uris for client in service.clients.values()] == [
        (f"{settings['public_url']}/sign-in/callback",)
    ]


async def ask_for_account(chat: Chat, simulator: Any, browser: Browser, question: str = "mine?") -> tuple[int, str]:
    """Ask a question whose tool needs an account, and confirm on the platform that the browser is Ada's."""
    await chat.say(question)
    await chat.simulator.wait_for(lambda: any(words.CONNECT in labels for labels in list_buttons(chat)))
    _, platform_url = await browser.open(await get_link(chat), "POST")
    return await browser.open(await simulator.sign_in("ada", platform_url))


@pytest.fixture
def guide_settings(settings: dict[str, Any], service: OAuthServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings for the tool of the guide, `GUIDE_TOOL`, with a client of the local provider."""
    client = service.register_client(f"{settings['public_url']}/sign-in/callback")
    module = ModuleType(GUIDE_TOOL.partition(":")[0])
    exec(read_examples(service.url, client.id)[0], module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return settings | {"sign_in_client_secrets": {client.id: client.secret}}


async def test_the_calendar_of_the_guide_is_the_persons(
    start: StartBot, guide_settings: dict[str, Any], simulator: Any, service: OAuthServer, browser: Browser
) -> None:
    async with start(answer, **guide_settings, tools=(GUIDE_TOOL,)) as chat:
        _, service_url = await ask_for_account(chat, simulator, browser)
        _, page = await browser.open(await service.sign_in("ada", service_url))
        assert "is connected" in page
        await wait_for_texts(chat, lambda found: any("Meeting of ada" in text for text in found))


async def test_an_openapi_tool_gets_the_account_that_its_person_connects(
    start: StartBot, settings: dict[str, Any], simulator: Any, service: OAuthServer, browser: Browser
) -> None:
    client = service.register_client(f"{settings['public_url']}/sign-in/callback")
    operation = {"operationId": "list_events", "responses": {"200": {"description": "The events."}}}
    toolset = OpenAPIToolset(
        spec_dict={
            "openapi": "3.0.0",
            "info": {"title": "Calendar", "version": "1"},
            "servers": [{"url": service.url}],
            "paths": {"/calendar": {"get": operation}},
        },
        auth_scheme=create_scheme(service),
        auth_credential=AuthCredential(
            auth_type=AuthCredentialTypes.OAUTH2,
            oauth2=OAuth2Auth(client_id=client.id, client_secret=client.secret),
        ),
        allow_private_network_access=True,
    )
    (calendar["tool"],) = await toolset.get_tools()
    async with start(answer, **settings, tools=("tests.scenarios.requests.test_sign_in:OPENAPI_TOOL",)) as chat:
        _, service_url = await ask_for_account(chat, simulator, browser)
        await browser.open(await service.sign_in("ada", service_url))
        await wait_for_texts(chat, lambda found: any("Meeting of ada" in text for text in found))


def __getattr__(name: str) -> Any:
    if name == "OPENAPI_TOOL":
        return calendar["tool"]
    raise AttributeError(name)


async def test_a_schedule_asks_and_acts_as_its_person(
    start: StartBot, guide_settings: dict[str, Any], simulator: Any, service: OAuthServer, browser: Browser
) -> None:
    def call(request: ReceivedRequest) -> Any:
        if request.tool_results and request.tool_results[-1].name == "schedule":
            return "Later, then."
        if "[A scheduled task" in request.messages[-1][1] or request.tool_results:
            return answer(request)
        return CallTool("schedule", {"text": "list my events", "in_minutes": 0.02})

    async with start(call, **guide_settings, tools=(GUIDE_TOOL, "core.tools:schedule")) as chat:
        _, service_url = await ask_for_account(chat, simulator, browser, "Do it later")
        await browser.open(await service.sign_in("ada", service_url))
        await wait_for_texts(chat, lambda found: any("Meeting of ada" in text for text in found))


async def test_the_api_key_of_the_guide_is_the_persons(
    start: StartBot,
    settings: dict[str, Any],
    simulator: Any,
    browser: Browser,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = list[str]()

    async def list_stations(request: web.Request) -> web.Response:
        keys.append(request.headers["X-Api-Key"])
        return web.json_response({"stations": ["Pier 7"]})

    app = web.Application()
    app.router.add_get("/stations", list_stations)
    module = f"weather_of_the_guide_{settings['port']}"
    monkeypatch.syspath_prepend(tmp_path)

    def call(request: ReceivedRequest) -> Any:
        return f"Result: {request.tool_results[-1].content}" if request.tool_results else CallTool("forecast")

    async with TestServer(app) as weather:
        code = read_examples("", "")[1].replace("https://weather.example.com", str(weather.make_url("")))
        (tmp_path / f"{module}.py").write_text(code)
        async with start(call, **settings, tools=(f"{module}:forecast",)) as chat:
            _, form = await ask_for_account(chat, simulator, browser)
            assert "Harbour Weather" in form
            (token,) = re.findall(r'name="token" value="([^"]+)"', form)
            fields = {"token": token, "secret": "key-of-ada"}
            _, page = await browser.open(f"{settings['public_url']}/sign-in/credential", "POST", fields)
            assert "is connected" in page
            await wait_for_texts(chat, lambda found: any("Pier 7" in text for text in found))
    assert keys == ["key-of-ada"]
