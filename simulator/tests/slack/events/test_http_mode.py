"""Request URL, OAuth and a second workspace of the local Slack."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import create_client


@asynccontextmanager
async def run_app(slack: SlackSimulator, *answers: web.Response) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """Run an HTTP app that verifies Slack's signatures.

    It responds to the first requests with `answers`, and then with 200. Yields its URL and the list of requests.
    """
    left, seen = list(answers), list[web.Request]()
    verifier = SignatureVerifier(slack.signing_secret)

    async def respond(request: web.Request) -> web.Response:
        body = await request.read()
        assert verifier.is_valid_request(body, dict(request.headers))
        seen.append(request)
        if b"url_verification" in body:
            return web.json_response({"challenge": (await request.json())["challenge"]})
        return left.pop(0) if left else web.Response()

    server = web.Application()
    server.router.add_post("/", respond)
    runner = web.AppRunner(server)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", seen
    finally:
        await runner.cleanup()


async def test_an_event_is_retried_with_its_attempt_until_acknowledged(slack: SlackSimulator) -> None:
    async with run_app(slack, web.Response(status=500)) as (url, seen):
        await slack.request_url.verify(url)
        await slack.post_message("ada", "general", "hi")
        await slack.wait_for(lambda: len(seen) == 3 and slack.envelopes[-1].acknowledged_at)
        assert "X-Slack-Retry-Num" not in seen[1].headers
        retry_headers = {name: seen[2].headers[f"X-Slack-Retry-{name}"] for name in ("Num", "Reason")}
        assert retry_headers == {"Num": "1", "Reason": "http_error"}


async def test_no_retry_is_respected_and_a_wrong_challenge_is_rejected(slack: SlackSimulator) -> None:
    async with run_app(slack, web.Response(status=500, headers={"X-Slack-No-Retry": "1"})) as (url, seen):
        with pytest.raises(ValueError, match="challenge"):
            await slack.request_url.verify(f"{url}nowhere")
        await slack.request_url.verify(url)
        await slack.post_message("ada", "general", "one")
        await slack.wait_for(lambda: len(seen) == 2)
        await slack.post_message("ada", "general", "two")
        await slack.wait_for(lambda: len(seen) == 3 and slack.envelopes[-1].acknowledged_at)
        assert len(slack.envelopes) == 2


@pytest.mark.parametrize("response", [web.json_response({"text": "done"}), web.Response(text="done")])
async def test_a_command_is_a_form_and_its_response_is_shown(slack: SlackSimulator, response: web.Response) -> None:
    async with run_app(slack, response) as (url, seen):
        await slack.request_url.verify(url)
        (visible,) = await slack.run_command("ada", "general", "/reset", "a&b")
        assert visible.text == "done"
        form = parse_qs((await seen[-1].read()).decode())
        assert (form["command"], form["text"], form["team_id"]) == (["/reset"], ["a&b"], [slack.team_id])


async def test_a_code_is_valid_once_and_a_token_until_the_uninstall(slack: SlackSimulator) -> None:
    async with SlackSimulator(name="Other", primary=slack) as other:
        keys = {"client_id": slack.oauth.client_id, "client_secret": slack.oauth.client_secret}
        query = parse_qs(other.authorize(f"https://x/?client_id={keys['client_id']}&scope=chat:write&state=s"))
        assert query["state"] == ["s"]
        nobody = AsyncWebClient(base_url=slack.api_url)
        wrong = [
            (keys | {"client_secret": "x"}, query["code"][0], "bad_client_secret"),
            (keys, "x", "invalid_code"),
        ]
        for known, code, error in wrong:
            with pytest.raises(SlackApiError, match=error):
                await nobody.oauth_v2_access(code=code, **known)
        got = await nobody.oauth_v2_access(code=query["code"][0], **keys)
        assert (got["team"], got["scope"]) == ({"id": other.team_id, "name": "Other"}, "chat:write")
        with pytest.raises(SlackApiError, match="invalid_code"):
            await nobody.oauth_v2_access(code=query["code"][0], **keys)
        client = AsyncWebClient(got["access_token"], base_url=slack.api_url)
        assert (await client.auth_test())["team"] == "Other"
        assert (await create_client(slack).auth_test())["team"] == "Simulator"
        other.uninstall()
        with pytest.raises(SlackApiError, match="token_revoked"):
            await client.auth_test()
        with pytest.raises(ValueError, match="invalid_client_id"):
            slack.authorize("https://x/?client_id=1&scope=x")
