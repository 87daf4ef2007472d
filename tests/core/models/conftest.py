"""Fixtures that connect each model provider to a server of its vendor's API."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple, cast

import pytest

from chatrig.models import Script, ScriptedAnthropic, ScriptedGemini, ScriptedOpenAI
from core.errors import ProviderError
from core.models.provider import ModelMessage, ModelRequest, Provider, ProviderEvent, Text
from core.models.providers.anthropic import AnthropicProvider
from core.models.providers.gemini import GeminiProvider
from core.models.providers.openai import OpenAIProvider

Server = ScriptedAnthropic | ScriptedGemini | ScriptedOpenAI

VENDORS: dict[str, tuple[Callable[[str, str], Provider], Callable[..., Server]]] = {
    "anthropic": (AnthropicProvider, ScriptedAnthropic),
    "gemini": (GeminiProvider, ScriptedGemini),
    "openai": (OpenAIProvider, ScriptedOpenAI),
}


_GREETING = (ModelMessage("user", (Text("Hi"),)),)


class ConnectedProvider(NamedTuple):
    """Model provider, and the scripted server that it is connected to."""

    provider: Provider
    server: Server

    async def collect_events(self, *messages: ModelMessage, **kwargs: Any) -> list[ProviderEvent]:
        request = ModelRequest("the-model", messages or _GREETING, **kwargs)
        async with aclosing(self.stream(request)) as events:
            return [event async for event in events]

    def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        return cast(AsyncGenerator[ProviderEvent, None], self.provider.stream(request))

    async def collect_until_error(self, **kwargs: Any) -> tuple[list[ProviderEvent], ProviderError]:
        """Send a request that fails; return the events before the error, and the error."""
        events = list[ProviderEvent]()
        try:
            async with aclosing(self.stream(ModelRequest("the-model", _GREETING, **kwargs))) as stream:
                async for event in stream:
                    events.append(event)
        except ProviderError as error:
            return events, error
        raise AssertionError(f"the request did not fail: {events}")

    async def get_error(self) -> Exception:
        """Send a request that fails, and return its error."""
        return (await self.collect_until_error())[1]


@asynccontextmanager
async def connect_provider(
    vendor: str, script: Script = (), *, key: str = "key", **server_options: Any
) -> AsyncIterator[ConnectedProvider]:
    create_provider, create_server = VENDORS[vendor]
    async with create_server(script, **server_options) as server:
        provider = create_provider(key, server.base_url)
        try:
            yield ConnectedProvider(provider, server)
        finally:
            await provider.aclose()


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def wire(vendor: str) -> AsyncIterator[ConnectedProvider]:
    async with connect_provider(vendor) as connected:
        yield connected


@pytest.fixture
async def openai_wire() -> AsyncIterator[ConnectedProvider]:
    async with connect_provider("openai") as connected:
        yield connected


@pytest.fixture
async def gemini_wire() -> AsyncIterator[ConnectedProvider]:
    async with connect_provider("gemini") as connected:
        yield connected


@pytest.fixture
async def anthropic_wire() -> AsyncIterator[ConnectedProvider]:
    async with connect_provider("anthropic") as connected:
        yield connected
