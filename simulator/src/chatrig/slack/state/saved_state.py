"""State of a workspace as JSON, with which a later simulator continues.

It has the users, conversations, and messages in their newest version. Deleted and ephemeral messages, pins, entered
values, user groups, custom emoji and the app's id are left out. A live stream is over in the later simulator.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from chatrig.slack.state.markup import SlackContent, TaskCard
from chatrig.slack.state.messages import NativeStream, SlackConversation, SlackFile, SlackMessage
from chatrig.slack.state.workspace import Workspace, WorkspaceUser

Json = dict[str, Any]

_MESSAGE_FIELDS = (
    "ts",
    "user",
    "bot_id",
    "username",
    "thread_ts",
    "subtype",
    "client_msg_id",
    "metadata",
    "edited",
    "edited_ts",
    "reactions",
    "attachments",
    "icons",
    "is_tombstone",
    "inviter",
)


def save_workspace(workspace: Workspace) -> Json:
    """Return the state of a workspace as JSON: see `load_workspace`."""
    return {
        "team_id": workspace.team_id,
        "bot_id": workspace.bot_id,
        "bot_user_id": workspace.bot.id,
        "users": [_drop_defaults(asdict(user)) for user in workspace.users.values()],
        "other_bots": workspace.other_bots,
        "channels": [
            _drop_defaults(asdict(channel)) | {"members": sorted(channel.members)}
            for channel in workspace.channels.values()
        ],
        "messages": [
            _save_message(message)
            for message in workspace.all_messages()
            if not message.deleted and message.ephemeral_to is None
        ],
    }


def load_workspace(workspace: Workspace, state: Mapping[str, Any]) -> None:
    """Replace the data of a new workspace by the result of `save_workspace`, without events."""
    workspace.team_id = state["team_id"]
    workspace.bot_id = state["bot_id"]
    workspace.users.clear()
    workspace.users.update({user["id"]: WorkspaceUser(**user) for user in state["users"]})
    workspace.bot = workspace.users[state["bot_user_id"]]
    workspace.other_bots.update(state["other_bots"])
    for channel in state["channels"]:
        prompts = tuple(map(tuple, channel.get("prompts", ())))
        workspace.register(SlackConversation(**{**channel, "members": set(channel["members"]), "prompts": prompts}))
    for message in state["messages"]:
        content = message["content"]
        parts = {
            "tasks": tuple(TaskCard(**task) for task in content.get("tasks", ())),
            "attachments": tuple(content.get("attachments", ())),
        }
        details = {name: message[name] for name in _MESSAGE_FIELDS if name in message}
        if "stream" in message:
            details["stream"] = NativeStream(message["stream"]["recipient"], 0.0, message["stream"]["mode"])
        files = [SlackFile(**{**file, "data": b64decode(file.get("data", ""))}) for file in message.get("files", ())]
        channel = workspace.channels[message["channel"]]
        workspace.add_message(channel, SlackContent(**{**content, **parts}), files=files, **details)


def _save_message(message: SlackMessage) -> Json:
    stream = message.stream and {"recipient": message.stream.recipient, "mode": message.stream.mode}
    files = [_drop_defaults(asdict(file) | {"data": b64encode(file.data).decode()}) for file in message.files]
    content = _drop_defaults(asdict(message.content))
    fields = {name: getattr(message, name) for name in _MESSAGE_FIELDS} | {"stream": stream, "files": files}
    return _drop_defaults(fields) | {"channel": message.channel.id, "content": content}


def _drop_defaults(fields: Json) -> Json:
    """Return the fields without those that are None, False or empty, as by default."""
    return {name: value for name, value in fields.items() if value}
