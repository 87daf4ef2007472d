"""Recording of the live check: shapes without values, and its file."""

import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.setup.live.recorder import ANY_KEY, merge_shapes, to_shape
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from core.errors import SettingsError
from tests.bot.setup.live.conftest import SPEED, run_check

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator(speed=SPEED) as simulator:
        yield simulator


def list_texts(shape: Any) -> list[Any]:
    """Return the scalars of a shape."""
    if isinstance(shape, dict):
        return [text for inner in shape.values() for text in list_texts(inner)]
    return [text for inner in shape for text in list_texts(inner)] if isinstance(shape, list) else [shape]


def list_keys(shape: Any) -> set[str]:
    if isinstance(shape, dict):
        return shape.keys() | {key for inner in shape.values() for key in list_keys(inner)}
    return {key for inner in shape for key in list_keys(inner)} if isinstance(shape, list) else set()


@given(json_values)
def test_a_shape_has_no_values_and_is_its_own_shape(value: Any) -> None:
    shape = to_shape(value)
    assert all(text in ("", 0, False, None) for text in list_texts(shape))
    assert to_shape(shape) == shape
    assert merge_shapes(shape, shape) == shape


def test_keys_that_are_values_are_removed() -> None:
    value = {
        "shares": {"private": {"C0123ABC": [{"ts": "1.2"}]}},
        "emoji": {"our_secret_emoji": "https://a.example"},
        "fields": {"Xf01": {"value": "x"}},
        "name_localizations": {"ko": "x"},
        "integration_types_config": {"0": {}},
        "metadata": {"event_payload": {"turn": "x"}},
    }
    assert to_shape(value) == {
        "shares": {"private": {ANY_KEY: [{"ts": ""}]}},
        "emoji": {ANY_KEY: ""},
        "fields": {ANY_KEY: {"value": ""}},
        "name_localizations": {ANY_KEY: ""},
        "integration_types_config": {ANY_KEY: {}},
        "metadata": {"event_payload": {ANY_KEY: ""}},
    }


async def test_a_recording_has_no_value_of_the_workspace(slack: SlackSimulator, tmp_path: Path) -> None:
    file = tmp_path / "slack.json"
    secret = slack.add_channel("secret", private=True)
    await run_check(slack, secret.id, record=file)
    recorded = json.loads(file.read_text())
    assert {exchange["call"] for exchange in recorded["slack"]} == {call.method for call in slack.calls} - {"upload"}
    shapes = [exchange[part] for exchange in recorded["slack"] for part in ("request", "response")]
    assert all(text in ("", 0, False, None) for text in list_texts(shapes))
    for value in (slack.bot_token, secret.id, slack.team_id, slack.bot_user_id, slack.people["ada"].id, "secret"):
        assert value not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_the_routes_of_a_recording_have_no_ids(tmp_path: Path) -> None:
    file = tmp_path / "discord.json"
    async with DiscordSimulator(speed=SPEED) as server:
        await run_check(server, server.add_channel("hidden", members=["ada"]).id, record=file)
        ids = {server.guild_id, server.bot_id, server.channels["hidden"].id}
    calls = [exchange["call"] for exchange in json.loads(file.read_text())["discord"]]
    assert "PUT /channels/{}/messages/{}/reactions/{}/@me" in calls
    assert not any(key in file.read_text() for key in ids)
    file_edit = [
        exchange["request"] for exchange in json.loads(file.read_text())["discord"] if "PATCH" in exchange["call"]
    ]
    assert {"attachments"} <= file_edit[-1].keys()


async def test_a_file_that_exists_or_cannot_be_written_prevents_all_calls(
    slack: SlackSimulator, tmp_path: Path
) -> None:
    file = tmp_path / "recording.json"
    file.write_text("mine")
    for path, fault in ((file, "exists: name another file"), (tmp_path / "none" / "x.json", "cannot be written to")):
        with pytest.raises(SettingsError, match=fault):
            await run_check(slack, "C0NOTHING", record=path)
    assert file.read_text() == "mine"
    assert slack.calls == []


async def test_a_failed_check_is_recorded_as_far_as_it_came(slack: SlackSimulator, tmp_path: Path) -> None:
    await run_check(slack, "C0NOTHING", record=tmp_path / "slack.json")
    recorded = json.loads((tmp_path / "slack.json").read_text())["slack"]
    assert [exchange["call"] for exchange in recorded] == ["auth.test", "conversations.info"]
    assert recorded[-1]["response"] == {"ok": False, "error": ""}
