"""Discord's own specification, and what a request, a reply or an event has in it that the specification has not.

`PLATFORM_SHAPES` names a folder with `discord_openapi.json` (OpenAPI 3.1, so its schemas are JSON Schema 2020-12).
A reply is held against what its route and status are specified to answer, a request against what its route takes, and
the objects within an event against the components of their kind, as the specification has no events.

Two things are let pass. discord.py sends some ids as numbers (`_NUMBERS`), and Discord takes them. And the
specification has the code of one field's error as a number, where Discord's pages show it as text
(`BASE_TYPE_MAX_LENGTH`), and so does the sandbox.
"""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from sandbox.discord import DiscordCallRecord, DiscordEventRecord

#: The folder, if there is one; without, nothing can be held against anything.
SHAPES = os.environ.get("PLATFORM_SHAPES")

_CHANNEL = ("GuildChannelResponse", "PrivateChannelResponse", "PrivateGroupChannelResponse", "ThreadResponse")
#: Of each event, the objects within it and the components that they may be; `[]` is each of a list.
OBJECTS: dict[str, dict[str, tuple[str, ...]]] = {
    "READY": {"user": ("UserPIIResponse",)},
    "RESUMED": {},
    "GUILD_CREATE": {
        "": ("GuildWithCountsResponse",),
        "channels[]": ("GuildChannelResponse",),
        "threads[]": ("ThreadResponse",),
        "members[]": ("GuildMemberResponse",),
    },
    "GUILD_MEMBER_ADD": {"": ("GuildMemberResponse",)},
    "GUILD_MEMBERS_CHUNK": {"members[]": ("GuildMemberResponse",)},
    "CHANNEL_CREATE": {"": ("GuildChannelResponse",)},
    "THREAD_CREATE": {"": ("ThreadResponse",)},
    "CHANNEL_DELETE": {"": ("GuildChannelResponse",)},
    "THREAD_UPDATE": {"": ("ThreadResponse",)},
    "THREAD_DELETE": {},
    "MESSAGE_CREATE": {"": ("MessageResponse",)},
    "MESSAGE_UPDATE": {"": ("MessageResponse",)},
    "MESSAGE_DELETE": {},
    "MESSAGE_DELETE_BULK": {},
    "MESSAGE_REACTION_ADD": {"emoji": ("MessageReactionEmojiResponse",), "member": ("GuildMemberResponse",)},
    "MESSAGE_REACTION_REMOVE": {"emoji": ("MessageReactionEmojiResponse",)},
    "INTERACTION_CREATE": {
        "channel": _CHANNEL,
        "member": ("GuildMemberResponse",),
        "user": ("UserResponse",),
        "message": ("MessageResponse",),
    },
}

#: Where discord.py writes ids as numbers.
_NUMBERS = {
    "message_reference.message_id",
    "message_reference.channel_id",
    "message_reference.guild_id",
    "allowed_mentions.users",
    "allowed_mentions.roles",
    "attachments.id",
    "message.attachments.id",
    "recipient_id",
}


@cache
def spec() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((Path(SHAPES or "") / "discord_openapi.json").read_text())
    return loaded


def faults(value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    validator = Draft202012Validator({"components": spec()["components"], **schema})
    for error in validator.iter_errors(value):
        best = min(error.context or [error], key=lambda inner: -len(inner.absolute_path))
        yield f"{where}: {'.'.join(map(str, best.absolute_path))}: {best.message[:200]}"


def of_kinds(*names: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}


@cache
def operation(route: str) -> dict[str, Any]:
    """What the specification says of a route, whatever it calls the ids in it."""
    method, path = re.sub(r"\{\w+\}", "{}", route).split(" ")
    (found,) = (about for known, about in spec()["paths"].items() if re.sub(r"\{\w+\}", "{}", known) == path)
    about: dict[str, Any] = found[method.lower()]
    return about


def faults_of_request(call: DiscordCallRecord) -> Iterator[str]:
    wanted = operation(call.route).get("requestBody")
    if wanted is None:
        if call.body:
            yield f"{call.route}: takes no body"
        return
    body = with_textual_ids(call.body)
    yield from faults(body, wanted["content"]["application/json"]["schema"], f"request {call.route}")


def with_textual_ids(body: Any, path: str = "") -> Any:
    """The same, text in place of the numbers that are let pass."""
    if isinstance(body, dict):
        return {name: with_textual_ids(value, f"{path}.{name}".lstrip(".")) for name, value in body.items()}
    if isinstance(body, list):
        return [with_textual_ids(value, path) for value in body]
    return str(body) if path in _NUMBERS and isinstance(body, int) else body


def faults_of_reply(call: DiscordCallRecord) -> Iterator[str]:
    responses = operation(call.route)["responses"]
    answer = responses.get(str(call.status)) or responses["4XX"]
    if "$ref" in answer:
        answer = spec()["components"]["responses"][answer["$ref"].rsplit("/", 1)[-1]]
    if "content" not in answer:
        if call.response is not None:
            yield f"{call.route} {call.status}: has no body"
        return
    where = f"reply {call.route} {call.status}"
    reply = with_numbers(call.response) if call.code == 50035 else call.response
    yield from faults(reply, answer["content"]["application/json"]["schema"], where)


def with_numbers(errors: Any) -> Any:
    """The same, the texts in place of codes replaced by a number."""
    if isinstance(errors, list):
        return [with_numbers(error) for error in errors]
    if not isinstance(errors, dict):
        return errors
    return {n: 0 if n == "code" and isinstance(v, str) else with_numbers(v) for n, v in errors.items()}


def faults_of_event(event: DiscordEventRecord) -> Iterator[str]:
    for path, kinds in OBJECTS[event.name].items():
        name = path.removesuffix("[]")
        value = event.data.get(name) if name else event.data
        for part in value if path.endswith("[]") and value else [value]:
            if part:
                yield from faults(part, of_kinds(*kinds), f"event {event.name} {path}")
