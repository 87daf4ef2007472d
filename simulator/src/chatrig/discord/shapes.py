"""Comparison of the simulator's JSON with Discord's own specification.

`PLATFORM_SHAPES` names a folder with `discord_openapi.json` (OpenAPI 3.1, whose schemas are JSON Schema 2020-12).
Responses are checked against their route and status, requests against their route, and the objects of an event against
the components of their kind: the specification has no events.

Two differences are accepted. discord.py sends some ids as numbers (`_NUMBERS`), and Discord takes them. The
specification has the code of a field's error as a number; Discord's pages and the simulator have text
(`BASE_TYPE_MAX_LENGTH`).
"""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from chatrig.discord import DiscordCallRecord, DiscordEventRecord
from chatrig.discord.oauth import CLIENT_ROUTES

#: Folder of the specification; without it, no payload is compared.
SHAPES = os.environ.get("PLATFORM_SHAPES")

_CHANNEL = ("GuildChannelResponse", "PrivateChannelResponse", "PrivateGroupChannelResponse", "ThreadResponse")
#: By event: its objects, and the specification's components for each; `[]` means each item of a list.
OBJECTS: dict[str, dict[str, tuple[str, ...]]] = {
    "READY": {"user": ("UserPIIResponse",)},
    "RESUMED": {},
    "GUILD_CREATE": {
        "": ("GuildWithCountsResponse",),
        "channels[]": ("GuildChannelResponse",),
        "threads[]": ("ThreadResponse",),
        "members[]": ("GuildMemberResponse",),
    },
    "GUILD_DELETE": {},
    "GUILD_EMOJIS_UPDATE": {"emojis[]": ("EmojiResponse",)},
    "GUILD_MEMBER_REMOVE": {"user": ("UserResponse",)},
    "GUILD_MEMBER_UPDATE": {"": ("GuildMemberResponse",)},
    "GUILD_MEMBER_ADD": {"": ("GuildMemberResponse",)},
    "GUILD_MEMBERS_CHUNK": {"members[]": ("GuildMemberResponse",)},
    "CHANNEL_CREATE": {"": ("GuildChannelResponse",)},
    "CHANNEL_PINS_UPDATE": {},
    "CHANNEL_UPDATE": {"": ("GuildChannelResponse",)},
    "INVITE_CREATE": {"inviter": ("UserResponse",)},
    "INVITE_DELETE": {},
    "THREAD_MEMBERS_UPDATE": {"added_members[]": ("ThreadMemberResponse",)},
    "THREAD_MEMBER_UPDATE": {"": ("ThreadMemberResponse",)},
    "TYPING_START": {"member": ("GuildMemberResponse",)},
    "WEBHOOKS_UPDATE": {},
    "THREAD_CREATE": {"": ("ThreadResponse",)},
    "CHANNEL_DELETE": {"": ("GuildChannelResponse",)},
    "THREAD_UPDATE": {"": ("ThreadResponse",)},
    "THREAD_DELETE": {},
    "MESSAGE_CREATE": {"": ("MessageResponse",)},
    "MESSAGE_UPDATE": {"": ("MessageResponse",)},
    "MESSAGE_DELETE": {},
    "MESSAGE_DELETE_BULK": {},
    "MESSAGE_REACTION_ADD": {"emoji": ("MessageReactionEmojiResponse",), "member": ("GuildMemberResponse",)},
    "MESSAGE_POLL_VOTE_ADD": {},
    "MESSAGE_POLL_VOTE_REMOVE": {},
    "MESSAGE_REACTION_REMOVE_ALL": {},
    "MESSAGE_REACTION_REMOVE_EMOJI": {"emoji": ("MessageReactionEmojiResponse",)},
    "MESSAGE_REACTION_REMOVE": {"emoji": ("MessageReactionEmojiResponse",)},
    "INTERACTION_CREATE": {
        "channel": _CHANNEL,
        "member": ("GuildMemberResponse",),
        "user": ("UserResponse",),
        "message": ("MessageResponse",),
    },
}

#: Paths at which discord.py sends ids as numbers.
_NUMBERS = {
    "message_reference.message_id",
    "message_reference.channel_id",
    "message_reference.guild_id",
    "allowed_mentions.users",
    "allowed_mentions.roles",
    "attachments.id",
    "message.attachments.id",
    "recipient_id",
    "messages",
    "sticker_ids",
}


def load_specification() -> dict[str, Any]:
    """Return Discord's published specification."""
    loaded: dict[str, Any] = json.loads((Path(SHAPES or "") / "discord_openapi.json").read_text())
    return loaded


@cache
def get_specification() -> dict[str, Any]:
    loaded = load_specification()
    # The specification lacks forwards, which docs.discord.com/developers/resources/message has.
    loaded["components"]["schemas"]["MessageReferenceType"] = {"enum": [0, 1]}
    return loaded


def find_errors(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    validator = Draft202012Validator({"components": get_specification()["components"], **schema})
    for error in validator.iter_errors(value):
        best = min(error.context or [error], key=lambda inner: -len(inner.absolute_path))
        yield f"{path}: {'.'.join(map(str, best.absolute_path))}: {best.message[:200]}"


def select_kinds(*names: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}


@cache
def find_operation(route: str) -> dict[str, Any]:
    """Return the specification of a route; the names of its ids may differ.

    Args:
        route: such as "GET /channels/{channel}".
    """
    method, path = re.sub(r"\{\w+\}", "{}", route).split(" ")
    (found,) = (
        about for known, about in get_specification()["paths"].items() if re.sub(r"\{\w+\}", "{}", known) == path
    )
    about: dict[str, Any] = found[method.lower()]
    return about


def find_request_errors(call: DiscordCallRecord) -> Iterator[str]:
    """Yield the faults of a request; none for a route of RFC 6749, which the specification leaves out."""
    if call.route in CLIENT_ROUTES:
        return
    wanted = find_operation(call.route).get("requestBody")
    if wanted is None:
        if call.body:
            yield f"{call.route}: takes no body"
        return
    body = convert_ids_to_text(call.body)
    yield from find_errors(body, wanted["content"]["application/json"]["schema"], f"request {call.route}")


def convert_ids_to_text(body: Any, path: str = "") -> Any:
    """Return a request body with all ids as text.

    Args:
        path: the dotted path of `body` in the whole request.
    """
    if isinstance(body, dict):
        return {name: convert_ids_to_text(value, f"{path}.{name}".lstrip(".")) for name, value in body.items()}
    if isinstance(body, list):
        return [convert_ids_to_text(value, path) for value in body]
    return str(body) if path in _NUMBERS and isinstance(body, int) else body


def find_response_errors(call: DiscordCallRecord) -> Iterator[str]:
    """Yield the faults of a response; none for a route of RFC 6749, which the specification leaves out."""
    if call.route in CLIENT_ROUTES:
        return
    responses = find_operation(call.route)["responses"]
    answer = responses.get(str(call.status)) or responses["4XX"]
    if "$ref" in answer:
        answer = get_specification()["components"]["responses"][answer["$ref"].rsplit("/", 1)[-1]]
    if "content" not in answer:
        if call.response is not None:
            yield f"{call.route} {call.status}: has no body"
        return
    path = f"reply {call.route} {call.status}"
    reply = convert_codes_to_numbers(call.response) if call.code == 50035 else call.response
    yield from find_errors(reply, answer["content"]["application/json"]["schema"], path)


def convert_codes_to_numbers(errors: Any) -> Any:
    """Return Discord's errors object with numbers instead of textual codes."""
    if isinstance(errors, list):
        return [convert_codes_to_numbers(error) for error in errors]
    if not isinstance(errors, dict):
        return errors
    return {n: 0 if n == "code" and isinstance(v, str) else convert_codes_to_numbers(v) for n, v in errors.items()}


def find_event_errors(event: DiscordEventRecord) -> Iterator[str]:
    for path, kinds in OBJECTS[event.name].items():
        name = path.removesuffix("[]")
        value = event.data.get(name) if name else event.data
        for part in value if path.endswith("[]") and value else [value]:
            if part:
                yield from find_errors(part, select_kinds(*kinds), f"event {event.name} {path}")
