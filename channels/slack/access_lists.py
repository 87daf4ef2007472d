"""Whether a workspace knows whom the lists of the door name."""

from collections.abc import Iterable

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.auth import client
from channels.slack.settings import SlackSettings
from core.errors import SettingsError

#: By the kind, the method that tells of one, and what that calls it.
_ASKS = {"user": ("users.info", "user"), "channel": ("conversations.info", "channel")}

#: What Slack says of what there is not.
_UNKNOWN = {"user_not_found", "users_not_found", "user_not_visible", "channel_not_found"}


async def unknown(settings: SlackSettings, rules: Iterable[str]) -> list[str]:
    """A line for each of the rules (`kind:id`) that names what Slack does not know. Where there may be several
    workspaces, no one knows all of them, and nothing is asked.

    Raises:
        SettingsError: Slack cannot be asked.
    """
    if not settings.bot_token:
        return []
    web, lines = client(settings), list[str]()
    groups: set[str] | None = None
    for rule in rules:
        kind, _, id_ = rule.partition(":")
        try:
            if kind == "role":
                groups = await _groups(web) if groups is None else groups
                is_known = id_ in groups
            else:
                is_known = kind not in _ASKS or id_ == "dm" or id_.startswith("B") or await _is_known(web, kind, id_)
        except SlackApiError as error:
            if error.response.get("error") != "missing_scope":
                raise SettingsError(f"SLACK_API_URL: Slack does not say whether it knows {rule}; try again.") from error
            lines.append(f"to know who is in {rule}, add the scope usergroups:read to the app, and install it again")
            break
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = f"cannot be reached ({type(error).__name__})"
            raise SettingsError(f"SLACK_API_URL: {web.base_url} {said}.") from error
        if not is_known:
            hint = "; a private channel is known once the bot is in it" if kind == "channel" else ""
            lines.append(f"Slack knows no {rule} here: copy the id anew, or remove it{hint}")
    return lines


async def _is_known(web: AsyncWebClient, kind: str, id_: str) -> bool:
    method, name = _ASKS[kind]
    try:
        await web.api_call(method, http_verb="GET", params={name: id_})
    except SlackApiError as error:
        if error.response.get("error") not in _UNKNOWN:
            raise
        return False
    return True


async def _groups(web: AsyncWebClient) -> set[str]:
    answer = await web.api_call("usergroups.list", http_verb="GET")
    return {str(group["id"]) for group in answer.get("usergroups") or ()}
