"""`oauth.v2.access` of the local Slack."""

import aiohttp
import pytest

from chatrig.slack import SlackSimulator


@pytest.mark.parametrize(("body", "error"), [("{", "invalid_json"), ("[]", "json_not_object")])
async def test_invalid_json_is_an_error_of_slack(slack: SlackSimulator, body: str, error: str) -> None:
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{slack.api_url}oauth.v2.access", data=body) as response,
    ):
        assert (response.status, await response.json()) == (200, {"ok": False, "error": error})
    assert [(call.method, call.status, call.error) for call in slack.calls] == [("oauth.v2.access", 200, error)]
