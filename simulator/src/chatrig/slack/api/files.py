"""Web API methods for files, and the upload and download of file contents.

Slack: docs.slack.dev/messaging/working-with-files. An app requests an upload URL, uploads the bytes, and completes the
upload, which posts a message. Slack does not document a second completion of a file; here it posts the file again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Any

from aiohttp import web

from chatrig.slack.api.base import WebApi
from chatrig.slack.api.faults import SlackFaults
from chatrig.slack.api.requests import Arguments, SlackError, parse_ts, select_page
from chatrig.slack.state.activity_log import SlackActivityLog
from chatrig.slack.state.markup import SlackContent
from chatrig.slack.state.messages import SlackFile, SlackMessage
from chatrig.slack.state.workspace import create_id

#: Method names of uploads and downloads in call records and faults.
UPLOAD, DOWNLOAD = "upload", "download"

#: The types of the argument `types` of `files.list`.
FILE_TYPES = frozenset({"all", "spaces", "snippets", "images", "gdocs", "zips", "pdfs"})

_LOGIN_PAGE = "<!DOCTYPE html><html><head><title>Sign in to Simulator | Slack</title></head><body></body></html>"


@dataclass(eq=False, slots=True)
class PendingUpload:
    """File for which the app has requested an upload URL.

    Attributes:
        length: the announced size in bytes.
        data: the uploaded content; None before the upload.
    """

    name: str
    length: int
    alt_text: str = ""
    data: bytes | None = None


class FileMethods:
    """Web API methods for files, and HTTP handlers for their contents.

    Attributes:
        base_url: the URL of the server, with a slash at the end; "" before it runs.
    """

    def __init__(self, api: WebApi, activity_log: SlackActivityLog, faults: SlackFaults) -> None:
        self._api = api
        self._workspace = api.workspace
        self._payloads = api.payloads
        self._activity_log = activity_log
        self._faults = faults
        self._uploads: dict[str, PendingUpload] = {}
        self._keys: dict[str, str] = {}
        self.base_url = ""
        api.register("files.getUploadURLExternal", self.get_upload_url, scope="files:write")
        api.register("files.completeUploadExternal", self.complete_upload, scope="files:write")
        api.register("files.delete", self.delete_file, scope="files:write")
        api.register("files.info", self.get_info, scope="files:read")
        api.register("files.list", self.list_files, scope="files:read")

    def get_upload_url(self, arguments: Arguments) -> dict[str, Any]:
        name, length = arguments.get_required("filename"), arguments.get_required("length")
        if not length.isdecimal() or int(length) < 1:
            raise SlackError("invalid_arguments", messages=["[ERROR] must be an integer [json-pointer:/length]"])
        file_id, key = create_id("F"), token_urlsafe(48)
        self._uploads[file_id] = PendingUpload(name, int(length), arguments.text("alt_txt"))
        self._keys[key] = file_id
        return {"upload_url": f"{self.base_url}upload/v1/{key}", "file_id": file_id}

    async def handle_upload(self, request: web.Request) -> web.StreamResponse:
        """Store the content of a file that is posted to an upload URL, raw or as a form.

        The response is 404 for an unknown URL, and 400 for another size than announced. Nothing is stored then. A
        pending fault of `upload` applies, except for a `delay`.
        """
        call = self._activity_log.record_call(UPLOAD, {})
        fault = self._faults.take(UPLOAD)
        if fault is not None and fault.kind in ("fail", "rate_limit"):
            call.status = 429 if fault.kind == "rate_limit" else fault.status
            return web.Response(status=call.status)
        upload = self._uploads.get(self._keys.get(request.match_info["key"], ""))
        data = await _read_bytes(request)
        call.status = 404 if upload is None else 200 if len(data) == upload.length else 400
        if upload is not None and call.status == 200:
            upload.data = data
        if fault is not None and fault.kind == "lose_response" and request.transport is not None:
            call.status = 0
            request.transport.abort()
        return web.Response(status=call.status, text=f"OK - {len(data)}" if call.status == 200 else "")

    def get_info(self, arguments: Arguments) -> dict[str, Any]:
        file_id = arguments.get_required("file")
        messages = self._workspace.find_file_messages(file_id)
        if not messages:
            raise SlackError("file_not_found")
        return {"file": self._payloads.shared_file(file_id, messages)}

    def list_files(self, arguments: Arguments) -> dict[str, Any]:
        """Run `files.list`: return a page of the files in the bot's conversations.

        The newest file is first. The arguments `types`, `user`, `channel`, `ts_from` and `ts_to` select files; the
        times are inclusive.

        Returns:
            The response's fields: `files`, as in `files.info`, and `paging` (see `select_page`).

        Raises:
            SlackError: `unknown_type`, `user_not_found`, `channel_not_found`, `invalid_ts_NAME` or `invalid_limit`.
        """
        types = set((arguments.text("types") or "all").split(","))
        if not types <= FILE_TYPES:
            raise SlackError("unknown_type")
        user = self._api.find_user(arguments.text("user")).id if "user" in arguments else None
        channel = self._api.find_channel(arguments) if "channel" in arguments else None
        oldest, latest = (parse_ts(arguments, name) for name in ("ts_from", "ts_to"))
        shared: dict[str, list[SlackMessage]] = {}
        for message in self._workspace.all_messages():
            if not message.deleted and self._workspace.bot.id in message.channel.members:
                for file in message.files:
                    shared.setdefault(file.id, []).append(message)
        files = [
            described
            for file_id, messages in shared.items()
            if channel is None or any(message.channel is channel for message in messages)
            if user in (None, (described := self._payloads.shared_file(file_id, messages))["user"])
            and (oldest is None or described["created"] >= oldest)
            and (latest is None or described["created"] <= latest)
            and {"all", _get_type(described)} & types
        ]
        page, paging = select_page(sorted(files, key=lambda file: -file["created"]), arguments)
        return {"files": list(page), "paging": paging}

    async def handle_download(self, request: web.Request) -> web.StreamResponse:
        """Respond with the content of a file.

        The response is 404 for an unknown file. Without a bot token that may read files, it is a login page with HTTP
        200, as from Slack. A file with a `redirect_url` is redirected there. Of the pending faults of `download`, only
        `fail` and `rate_limit` apply.
        """
        call = self._activity_log.record_call(DOWNLOAD, {"file": request.match_info["file"]})
        response = self._create_download(request)
        call.status = response.status
        return response

    def _create_download(self, request: web.Request) -> web.Response:
        fault = self._faults.take(DOWNLOAD)
        if fault is not None and fault.kind in ("fail", "rate_limit"):
            return web.Response(status=429 if fault.kind == "rate_limit" else fault.status)
        file_id = request.match_info["file"]
        message = next(iter(self._workspace.find_file_messages(file_id)), None)
        if message is None:
            return web.Response(status=404)
        file = message.find_file(file_id)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._api.token_kind(token) != "bot" or not self._api.has_scope("files:read"):
            return web.Response(text=_LOGIN_PAGE, content_type="text/html")
        if file.redirect_url:
            return web.Response(status=302, headers={"Location": file.redirect_url})
        return web.Response(body=file.data, content_type=self._payloads.file(message, file)["mimetype"])

    def complete_upload(self, arguments: Arguments) -> dict[str, Any]:
        """Run `files.completeUploadExternal`: post uploaded files as one message.

        Without the argument `channel_id`, nothing is posted. `initial_comment` is the text of the message, `thread_ts`
        its thread.

        Returns:
            The response's field `files`: for posted files as in `files.info`, otherwise with `id` and `title` only.

        Raises:
            SlackError: `file_not_found` for a file that is unknown or not uploaded yet; `invalid_arguments` without
                files or for an unknown thread; or as for `WebApi.find_channel` and `WebApi.require_writable`.
        """
        listed = arguments.json("files", error="invalid_arguments")
        if not isinstance(listed, list) or not listed:
            raise SlackError("invalid_arguments", messages=["[ERROR] missing required field: files"])
        files = [self._complete_file(str(entry.get("id")), entry.get("title")) for entry in listed]
        if "channel_id" not in arguments:
            return {"files": [{"id": file.id, "title": file.title} for file in files]}
        channel = self._api.require_writable(
            self._api.find_channel(Arguments({"channel": arguments.text("channel_id")}))
        )
        thread_ts = arguments.text("thread_ts") or None
        if thread_ts and self._workspace.find_message(channel, thread_ts) is None:
            raise SlackError("invalid_arguments", messages=["[ERROR] no such thread [json-pointer:/thread_ts]"])
        message = self._workspace.post_message(
            channel,
            SlackContent(arguments.text("initial_comment")),
            user=self._workspace.bot.id,
            bot_id=self._workspace.bot_id,
            thread_ts=thread_ts,
            subtype="file_share",
            files=tuple(files),
        )
        return {"files": [self._payloads.shared_file(file.id, [message]) for file in files]}

    def delete_file(self, arguments: Arguments) -> dict[str, Any]:
        """Run `files.delete`: delete a file of the app, and the messages that contain it.

        A message is deleted even if it contains other files too. The response has no fields.

        Raises:
            SlackError: `file_not_found` if the app did not upload the file.
        """
        file_id = arguments.get_required("file")
        if self._uploads.pop(file_id, None) is None:
            raise SlackError("file_not_found")
        for message in self._workspace.find_file_messages(file_id):
            self._workspace.delete_message(message)
        return {}

    def _complete_file(self, file_id: str, title: str | None) -> SlackFile:
        upload = self._uploads.get(file_id)
        if upload is None or upload.data is None:
            raise SlackError("file_not_found")
        return SlackFile(file_id, upload.name, upload.data, title or upload.name, upload.alt_text)


def _get_type(described: Mapping[str, Any]) -> str:
    """Return the value of the argument `types` of `files.list` that selects a file.

    It is "" for a file without such a type.

    Args:
        described: the JSON of the file.
    """
    if described["mimetype"].startswith("image/"):
        return "images"
    return {"zip": "zips", "pdf": "pdfs"}.get(described["filetype"], "")


async def _read_bytes(request: web.Request) -> bytes:
    if request.content_type != "multipart/form-data":
        return await request.read()
    for value in (await request.post()).values():
        if isinstance(value, web.FileField):
            return value.file.read()
    return b""
