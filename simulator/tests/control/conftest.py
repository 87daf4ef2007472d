"""Fixtures of a control server and its HTTP client."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from chatrig.control import ControlServer
from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedAnthropic, ScriptedGemini, ScriptedOpenAI
from chatrig.slack import SlackSimulator
from tests.discord.conftest import connect as connect_discord
from tests.slack.conftest import connect as connect_slack

__all__ = ["connect_discord", "connect_slack"]


class ControlClient:
    """HTTP client of a control server.

    Attributes:
        slack, discord, openai: the servers that it controls.
    """

    def __init__(
        self,
        server: ControlServer,
        session: aiohttp.ClientSession,
        slack: SlackSimulator,
        discord: DiscordSimulator,
        openai: ScriptedOpenAI,
    ) -> None:
        self.server = server
        self.slack = slack
        self.discord = discord
        self.openai = openai
        self._session = session

    async def request(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Return the status and the JSON of the response."""
        async with self._session.request(method, f"{self.server.url}{path}", **options) as response:
            return response.status, await response.json()

    async def post(self, path: str, **fields: Any) -> Any:
        """Return the JSON of a successful POST."""
        status, result = await self.request("POST", path, json=fields)
        assert status == 200, result
        return result

    async def get(self, path: str, **query: str) -> Any:
        """Return the JSON of a successful GET."""
        status, result = await self.request("GET", path, params=query)
        assert status == 200, result
        return result

    async def get_error(self, path: str, **fields: Any) -> str:
        """Return the error of a POST that is refused with 400."""
        status, result = await self.request("POST", path, json=fields)
        assert status == 400, result
        return str(result["error"])


@pytest.fixture
async def control() -> AsyncIterator[ControlClient]:
    async with (
        SlackSimulator() as slack,
        DiscordSimulator(speed=20) as discord,
        ScriptedOpenAI() as openai,
        ScriptedAnthropic() as anthropic,
        ScriptedGemini() as gemini,
        ControlServer(slack, discord, {"openai": openai, "anthropic": anthropic, "gemini": gemini}) as server,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {server.token}"}) as session,
    ):
        yield ControlClient(server, session, slack, discord, openai)
