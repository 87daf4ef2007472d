"""Manifests that the local Slack accepts."""

from typing import Any

import pytest

from chatrig.slack import SlackSimulator
from chatrig.slack.manifest_check import check_manifest

_NAME = {"display_information": {"name": "Bot"}}


@pytest.mark.parametrize(
    "manifest",
    [_NAME, _NAME | {"features": {}, "oauth_config": {}, "settings": {}}, _NAME | {"oauth_config": {"scopes": {}}}],
)
async def test_a_missing_section_is_empty(slack: SlackSimulator, manifest: dict[str, Any]) -> None:
    assert slack.install(manifest) == frozenset()
    assert (slack.scopes, slack.subscriptions, slack.socket_mode) == (set(), set(), False)
    with pytest.raises(ValueError, match="the manifest has no /help"):
        await slack.run_command("ada", "general", "/help")


def test_events_need_socket_mode_or_a_request_url() -> None:
    with pytest.raises(ValueError, match="events need a request_url"):
        check_manifest(_NAME | {"settings": {"event_subscriptions": {"bot_events": []}}})
