"""Comparison of recorded calls of a platform with the simulator's responses.

`recordings/*.json` have the shapes that `parley check --live --record FILE` writes: by platform, a list of `call`,
`status`, `request` and `response`, with empty values, and `*` for keys that are values. `simulator.json` was recorded
from the simulator. Put the file of a real workspace beside it: a field that the simulator never sends in responses to
the same call, or of another JSON type, is a difference. Null is none.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.discord import DiscordSimulator
from chatrig.discord.state.permissions import PERMISSIONS
from chatrig.slack import SlackSimulator
from tests.discord.conftest import Connect, connect
from tests.discord.test_fidelity import FidelityBot, call_channel_routes, call_member_routes, call_message_routes
from tests.slack.conftest import create_client
from tests.slack.test_fidelity import call_every_method, check_rejection, merge_shapes

__all__ = ["connect"]

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.json"))

Responses = Mapping[str, Any]


def find_differences(recorded: Any, known: Any, path: str) -> Iterator[str]:
    """Yield a line for each difference of a recorded shape from the merged responses of the simulator."""
    if recorded is None or known is None:
        return
    if isinstance(recorded, dict) and isinstance(known, dict):
        for name, inner in recorded.items():
            values = list(known.values()) if name == "*" else [known[name]] if name in known else []
            if not values and known:
                yield f"{path}.{name} is not known"
            for value in values[:1]:
                yield from find_differences(inner, value, f"{path}.{name}")
    elif isinstance(recorded, list) and isinstance(known, list):
        for inner in recorded if known else ():
            yield from min((list(find_differences(inner, kind, f"{path}[]")) for kind in known), key=len)
    elif get_json_type(recorded) != get_json_type(known):
        yield f"{path} is a {get_json_type(recorded)}, not a {get_json_type(known)}"


def get_json_type(value: Any) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", str: "text", dict: "object", list: "list"}
    return kinds[type(value)]


def find_all_differences(exchanges: Sequence[Mapping[str, Any]], known: Responses) -> list[str]:
    found = list[str]()
    for exchange in exchanges:
        if exchange["call"] in known:
            found += find_differences(exchange["response"], known[exchange["call"]], exchange["call"])
        else:
            found.append(f"{exchange['call']} is not called")
    return found


def merge_responses(calls: Sequence[tuple[str, Any]]) -> Responses:
    merged: dict[str, Any] = {}
    for call, response in calls:
        merged[call] = merge_shapes(merged[call], response) if call in merged else response
    return merged


async def call_like_a_bot(slack: SlackSimulator, client: AsyncWebClient) -> None:
    """Show a reply in a private channel: edited, streamed with a task, and with a file."""
    channel = slack.add_channel("secret", private=True).id
    await client.conversations_info(channel=channel)
    await client.conversations_members(channel=channel)
    blocks = [{"type": "markdown", "text": "**hi**"}]
    metadata = {"event_type": "x", "event_payload": {"y": "z"}}
    root = await client.chat_postMessage(channel=channel, text="hi", blocks=blocks, metadata=metadata)
    place: dict[str, Any] = {"channel": channel, "ts": root["ts"]}
    await client.chat_update(**place, text="hi", blocks=blocks)
    recipient: dict[str, Any] = {"recipient_user_id": slack.people["ada"].id, "recipient_team_id": slack.team_id}
    task = {"type": "task_update", "id": "1", "title": "Looking", "status": "in_progress"}
    chunks = [task, {"type": "markdown_text", "text": "x"}]
    stream = await client.chat_startStream(channel=channel, thread_ts=root["ts"], chunks=chunks, **recipient)
    await client.chat_stopStream(channel=channel, ts=stream["ts"], metadata=metadata, chunks=chunks)
    await client.files_upload_v2(channel=channel, thread_ts=root["ts"], filename="a.txt", content="a")
    await client.conversations_replies(**place, include_all_metadata=True)
    await client.conversations_history(channel=channel, include_all_metadata=True)
    await client.chat_delete(**place)
    await check_rejection(client.chat_delete(channel=channel, ts="1.0"))


@pytest.fixture
async def slack_responses() -> Responses:
    async with SlackSimulator(rate_limits=False) as slack:
        await call_like_a_bot(slack, create_client(slack))
        await call_every_method(slack, create_client(slack))
        return merge_responses([(call.method, call.response) for call in slack.calls])


@pytest.fixture
async def discord_responses(connect: Connect) -> Responses:
    async with DiscordSimulator(rate_limits=False) as server:
        server.permissions |= set(PERMISSIONS)
        bot = await connect(server, bot=FidelityBot())
        for call_routes in (call_message_routes, call_channel_routes, call_member_routes):
            await call_routes(server, bot)
        await bot.close()
        return merge_responses([(re.sub(r"{\w+}", "{}", call.route), call.response) for call in server.calls])


@pytest.fixture(params=RECORDINGS, ids=[file.stem for file in RECORDINGS])
def recorded(request: pytest.FixtureRequest) -> Any:
    file: Path = request.param
    return json.loads(file.read_text())


async def test_recorded_calls_have_the_shapes_of_the_simulator(
    recorded: Any, slack_responses: Responses, discord_responses: Responses
) -> None:
    assert find_all_differences(recorded.get("slack", ()), slack_responses) == []
    assert find_all_differences(recorded.get("discord", ()), discord_responses) == []


@pytest.fixture
def changed() -> dict[str, Any]:
    """Return the recorded calls of the local Slack, to be changed."""
    recorded = json.loads((Path(__file__).parent / "recordings" / "simulator.json").read_text())
    return {exchange["call"]: exchange for exchange in recorded["slack"]}


async def test_a_new_field_another_type_and_an_unknown_call_are_differences(
    changed: dict[str, Any], slack_responses: Responses
) -> None:
    changed["chat.postMessage"]["response"]["message"]["added_by_slack"] = ""
    changed["chat.update"]["response"]["ts"] = 0
    file = changed["files.completeUploadExternal"]["response"]["files"][0]
    file["shares"]["private"]["*"][0]["new"] = False
    unknown = {"call": "chat.sing", "status": 200, "request": {}, "response": {"ok": True}}
    assert find_all_differences([*changed.values(), unknown], slack_responses) == [
        "chat.postMessage.message.added_by_slack is not known",
        "chat.update.ts is a number, not a text",
        "files.completeUploadExternal.files[].shares.private.*[].new is not known",
        "chat.sing is not called",
    ]
