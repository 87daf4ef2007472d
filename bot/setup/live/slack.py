"""Live check of Slack: the calls of a streamed and an edited reply with a file, in a private channel or a DM."""

import asyncio
import json
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

import aiohttp

from bot.setup.live.steps import PAUSES, REPORT_REMEDY, LiveStep, StepError, StepRunner
from bot.setup.probes import CheckVerdict
from channels.base import File
from channels.rate_limits.retries import RefusedError
from channels.slack.client.api import ApiObject, SlackApi
from channels.slack.client.auth import OPTIONAL_SCOPES, SCOPES, make_session, make_web_client
from channels.slack.client.blocks import message_content
from channels.slack.client.rate_limits import TIER_2
from channels.slack.settings import SlackSettings

_LOGIN_REMEDY = (
    "Copy the Bot User OAuth Token at https://api.slack.com/apps, your app, under OAuth & Permissions, into "
    "SLACK_BOT_TOKEN."
)
_NOT_FOUND_REMEDY = "Invite the bot to the channel (/invite @ and its name), or correct the id after `--in slack:`."

#: Remedies by Slack's error code. Slack: docs.slack.dev/reference/methods.
_REMEDIES: Mapping[str, str] = {
    **dict.fromkeys(
        ("invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive"), _LOGIN_REMEDY
    ),
    **dict.fromkeys(("not_in_channel", "channel_not_found"), _NOT_FOUND_REMEDY),
    "is_archived": "Unarchive the channel, or name another one.",
    "user_not_found": "Correct the user's id after `--in slack:`.",
    "cannot_dm_bot": "Name a person's id after `--in slack:`, not a bot's.",
    "messages_tab_disabled": "Switch on the Messages tab: your app's page, under App Home.",
    "restricted_action": "A setting of the workspace forbids it: ask an admin, or name another channel.",
    "file_uploads_disabled": "A setting of the workspace forbids files: ask an admin.",
    "storage_limit_reached": "The workspace has no room for files: delete some.",
    "not_allowed_token_type": _LOGIN_REMEDY,
}

#: Most reads that wait for the file's message. Slack posts it some time after the call that shares the file.
_FILE_READS = 4

_EVENT = "parley_check"

_DELETED = {"message_not_found", "file_not_found", "file_deleted"}


class SlackLiveCheck:
    """Makes the calls, and remembers what they wrote.

    Args:
        place: the id of a private channel, of a DM, or of a user.
        marker: a text that is unique to this check, and is in everything that it writes.
    """

    def __init__(self, api: SlackApi, runner: StepRunner, place: str, marker: str) -> None:
        self._api = api
        self._runner = runner
        self._marker = marker
        self._channel = place
        self._is_direct = place.startswith(("U", "W", "D"))
        self._has_posted = False
        self._own: Mapping[str, Any] = {}
        self._recipient: dict[str, str] = {}
        self._root = ""
        self._stream = ""
        self._file = ""
        self._is_shared = False
        self._texts: list[str] = []
        self._found: dict[str, ApiObject] = {}

    def list_steps(self) -> list[LiveStep]:
        place = LiveStep("place", "conversations.info", self._check_place, {"channel.id": str}, needs=("token",))
        member = LiveStep("member", "users.info", self._find_recipient, {"user.id": str}, needs=("place",))
        begin = ("token",) if self._is_direct else ("place",)
        return [
            LiveStep("token", "auth.test", self._authenticate, {"user_id": str, "team_id": str, "url": str}),
            *([] if self._is_direct else [place, member]),
            LiveStep(
                "post", "chat.postMessage", self._post, {"channel": str, "ts": str, "message": dict}, begin, posts=True
            ),
            LiveStep("edit", "chat.update", self._edit, {"channel": str, "ts": str}, needs=("post",)),
            LiveStep(
                "stream start",
                "chat.startStream",
                self._start_stream,
                {"channel": str, "ts": str},
                needs=("post",) if self._is_direct else ("post", "member"),
                posts=True,
            ),
            LiveStep("stream append", "chat.appendStream", self._append, needs=("stream start",)),
            LiveStep(
                "stream stop",
                "chat.stopStream",
                self._stop_stream,
                needs=("stream start",),
                repeat_code="message_not_in_streaming_state",
            ),
            LiveStep(
                "upload",
                "files.getUploadURLExternal",
                self._upload,
                {"upload_url": str, "file_id": str},
                needs=("post",),
            ),
            LiveStep("file", "files.completeUploadExternal", self._share, {"files.0.id": str}, needs=("upload",)),
            LiveStep("react", "reactions.add", self._react, needs=("post",), repeat_code="already_reacted"),
            LiveStep("unreact", "reactions.remove", self._unreact, needs=("react",), repeat_code="no_reaction"),
            LiveStep("read", "conversations.replies", self._read_thread, {"messages.0.ts": str}, needs=("post",)),
        ]

    async def _call(self, method: str, arguments: Mapping[str, Any], **options: Any) -> ApiObject:
        answer = await self._api.call(method, arguments, self._api.get_limiter(method, TIER_2), **options)
        assert answer is not None, "only a stream update may be dropped"
        return answer

    async def _authenticate(self) -> None:
        self._own = await self._call("auth.test", {})

    async def _check_place(self) -> None:
        answer = await self._call("conversations.info", {"channel": self._channel}, reads=True)
        channel = answer["channel"]
        if not (channel.get("is_private") or channel.get("is_im")):
            raise StepError(
                f"#{channel.get('name')} is a public channel, where others would see the check. "
                "Name a private channel or a user (the DM with them) after `--in slack:`"
            )

    async def _find_recipient(self) -> None:
        """Choose the first person of the channel. Slack: a stream in a channel has a recipient."""
        members = await self._call("conversations.members", {"channel": self._channel}, reads=True)
        for member in members.get("members") or ():
            user = (await self._call("users.info", {"user": member}, reads=True))["user"]
            if not user.get("is_bot") and member != self._own["user_id"]:
                team = user.get("team_id") or self._own["team_id"]
                self._recipient = {"recipient_user_id": member, "recipient_team_id": team}
                return
        raise StepError("the channel has no person to stream to. Join it, or name a user after `--in slack:`")

    def _metadata(self) -> dict[str, Any]:
        return {"event_type": _EVENT, "event_payload": {"check": self._marker}}

    async def _post(self) -> None:
        self._has_posted = True
        arguments = {"channel": self._channel, "unfurl_links": False, "unfurl_media": False}
        answer = await self._call(
            "chat.postMessage",
            {**arguments, "metadata": self._metadata(), **message_content(f"{self._marker}: a **post**")},
        )
        self._channel = str(answer["channel"])
        self._root = str(answer["ts"])

    async def _edit(self) -> None:
        content = message_content(f"{self._marker}: a post that was **edited**")
        await self._call("chat.update", {"channel": self._channel, "ts": self._root, **content})
        self._texts.append("edited")

    async def _start_stream(self) -> None:
        task = {"type": "task_update", "id": "check", "title": "A task", "status": "in_progress"}
        answer = await self._call(
            "chat.startStream",
            {
                "channel": self._channel,
                "thread_ts": self._root,
                "unfurl_links": False,
                "unfurl_media": False,
                "chunks": [task, _text_chunk(f"{self._marker}: a stream, ")],
                **self._recipient,
            },
        )
        self._stream = str(answer["ts"])

    async def _append(self) -> None:
        chunks = [_text_chunk("a second part, ")]
        await self._call("chat.appendStream", {"channel": self._channel, "ts": self._stream, "chunks": chunks})
        self._texts.append("a second part")

    async def _stop_stream(self) -> None:
        task = {"type": "task_update", "id": "check", "title": "A task", "status": "complete"}
        await self._call(
            "chat.stopStream",
            {
                "channel": self._channel,
                "ts": self._stream,
                "metadata": self._metadata(),
                "chunks": [task, _text_chunk("and the end.")],
            },
        )
        self._texts.append("and the end")

    async def _upload(self) -> None:
        name = f"{self._marker.replace(' ', '-')}.txt"
        self._file = await self._api.upload(File(name, b"A file of parley check --live.\n"), self._own["team_id"])

    async def _share(self) -> None:
        files = [{"id": self._file, "title": f"{self._marker}.txt"}]
        arguments = {"files": json.dumps(files), "channel_id": self._channel, "thread_ts": self._root}
        await self._call("files.completeUploadExternal", arguments, is_form=True)
        self._is_shared = True

    async def _react(self) -> None:
        arguments = {"channel": self._channel, "timestamp": self._root, "name": "eyes"}
        await self._call("reactions.add", arguments)

    async def _unreact(self) -> None:
        arguments = {"channel": self._channel, "timestamp": self._root, "name": "eyes"}
        await self._call("reactions.remove", arguments)

    async def _read_thread(self) -> None:
        """Read the thread, until the message of the shared file is in it, and compare its text."""
        for reads in range(1, _FILE_READS + 1):
            await self._read("conversations.replies", ts=self._root)
            if not self._is_shared or reads == _FILE_READS or any(map(self._has_file, self._found.values())):
                break
            await asyncio.sleep(1.0)
        shown = json.dumps(list(self._found.values()))
        if missing := [text for text in self._texts if text not in shown]:
            raise StepError(f"the thread lacks the text of {', '.join(map(repr, missing))}. {REPORT_REMEDY}")

    async def _read(self, method: str, **arguments: str) -> None:
        """Find the messages of this check in the thread or channel."""
        arguments |= {"channel": self._channel, "include_all_metadata": "true", "limit": "200"}
        messages: Iterable[ApiObject] = (await self._call(method, arguments, reads=True)).get("messages") or ()
        for message in messages:
            if message.get("user") == self._own["user_id"] and (
                self._marker in json.dumps(message) or self._has_file(message)
            ):
                self._found[str(message["ts"])] = message

    def _has_file(self, message: ApiObject) -> bool:
        return any(file.get("id") == self._file for file in message.get("files") or ())

    async def clean_up(self) -> None:
        """Delete everything that the check wrote, and name what may be left."""
        if not self._has_posted:
            return
        if not self._channel.startswith(("U", "W")):  # Slack: the id of a DM is known after the first post
            await self._run("read channel", "conversations.history", self._read("conversations.history"))
        if self._root and self._runner.uncertain:
            await self._run("read thread", "conversations.replies", self._read("conversations.replies", ts=self._root))
        replies = {ts for ts, message in self._found.items() if message.get("thread_ts", ts) != ts}
        replies |= {self._stream} - {""}
        roots = (self._found.keys() | {self._root}) - replies - {""}
        if roots:
            self._runner.uncertain.discard("post")
        if any(not self._found.get(ts, {}).get("files") for ts in replies):
            self._runner.uncertain.discard("stream start")
        left = []
        if self._file and not await self._run(
            "delete file", "files.delete", self._delete("files.delete", file=self._file)
        ):
            left.append(f"the file {self._file}")
        for ts in (*sorted(replies), *sorted(roots)):  # Slack: a deleted message with replies stays as a tombstone
            deletion = self._delete("chat.delete", channel=self._channel, ts=ts)
            if not await self._run("delete message", "chat.delete", deletion):
                left.append(f"{self._own['url']}archives/{self._channel}/p{ts.replace('.', '')}")
        self._runner.report_cleanup(self._channel, self._marker, left)

    async def _run(self, name: str, method: str, call: Awaitable[None]) -> bool:
        return await self._runner.run(LiveStep(name, method, lambda: call))

    async def _delete(self, method: str, **arguments: str) -> None:
        try:
            await self._call(method, arguments)
        except RefusedError as refusal:
            if refusal.code in _DELETED:
                return
            if refusal.code != "cant_delete_message":
                raise
            await self._call("chat.stopStream", arguments)  # Slack: an open stream cannot be deleted
            await self._call(method, arguments)


def _text_chunk(text: str) -> dict[str, str]:
    return {"type": "markdown_text", "text": text}


def find_remedy(step: LiveStep, code: str, response: Any) -> str:
    """Return the remedy for a refusal of Slack: see `FindRemedy`."""
    if code == "missing_scope":
        needed = str((response or {}).get("needed", ""))
        known = set(needed.split(",")) & (SCOPES | OPTIONAL_SCOPES)
        scopes = ", ".join(sorted(known)) or needed
        return (
            f"The app lacks the scope {scopes}: paste the output of `parley manifest slack` as the App Manifest at "
            "https://api.slack.com/apps, your app, and install the app again."
        )
    return _REMEDIES.get(code, f"See https://docs.slack.dev/reference/methods/{step.call}")


async def check_slack(login: SlackSettings, place: str, marker: str, runner: StepRunner, *, speed: float) -> None:
    """Make the calls in a place, and delete everything that they wrote, also after a failure."""
    if not login.bot_token:
        line = "SLACK_BOT_TOKEN is not set: set it to the token of one workspace for this check"
        return runner.report(CheckVerdict.FAIL, line)
    web = make_web_client(login)
    trace = aiohttp.TraceConfig()
    runner.recorder.attach(trace)
    async with make_session(trace) as session:
        web.session = session
        check = SlackLiveCheck(SlackApi(web, pauses=PAUSES, speed=speed), runner, place, marker)
        try:
            await runner.run_all(check.list_steps())
        finally:
            await check.clean_up()
