"""Requests and responses of Discord's REST API, and its error codes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import BodyPartReader, web

#: Discord: docs.discord.com/developers/reference, "Uploading Files".
MAX_REQUEST_BYTES = 25 * 2**20

# Discord: docs.discord.com/developers/topics/opcodes-and-status-codes, "JSON".
UNKNOWN_CHANNEL, UNKNOWN_GUILD, UNKNOWN_MEMBER, UNKNOWN_MESSAGE = 10003, 10004, 10007, 10008
UNKNOWN_USER, UNKNOWN_EMOJI, UNKNOWN_WEBHOOK, UNKNOWN_INTERACTION = 10013, 10014, 10015, 10062
REQUEST_TOO_LARGE, ALREADY_ACKNOWLEDGED, MISSING_ACCESS = 40005, 40060, 50001
CANNOT_EDIT_MESSAGE, EMPTY_MESSAGE, CANNOT_MESSAGE_USER, NON_TEXT_CHANNEL = 50005, 50006, 50007, 50008
MISSING_PERMISSIONS, INVALID_WEBHOOK_TOKEN, INVALID_FORM_BODY, THREAD_ARCHIVED = 50013, 50027, 50035, 50083
INVALID_JSON, REPLY_REQUIRES_HISTORY, THREAD_EXISTS, THREAD_LOCKED = 50109, 160002, 160004, 160005
TOO_MANY_FOLLOW_UPS, INVALID_CHANNEL_TYPE, DM_CHANNEL, UNKNOWN_INVITE = 40094, 50024, 50003, 10006
UNKNOWN_COMMAND, TOO_MANY_COMMANDS, INVALID_STICKER, ALREADY_CROSSPOSTED = 10063, 30032, 50081, 40033
TOO_MANY_PINS, TOO_OLD_TO_DELETE, UNREADABLE_FORWARD, SYSTEM_MESSAGE = 30003, 50034, 160014, 50021
POLL_NOT_EDITABLE, NOT_A_POLL, NEEDS_THREAD, THREAD_AND_NAME = 520003, 520006, 220001, 220002
ONLY_FORUM_THREADS, UNKNOWN_STICKER = 220003, 10060


class DiscordError(Exception):
    """Error response of Discord's REST API.

    Attributes:
        status: the HTTP status.
        code: Discord's JSON error code.
        body: the JSON body.
    """

    def __init__(self, status: int, code: int, message: str, errors: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.body: dict[str, Any] = {"message": message, "code": code} | ({"errors": errors} if errors else {})


def create_form_error(field: str, code: str, message: str) -> DiscordError:
    """Return the error 50035 ("Invalid Form Body") about one field.

    Args:
        field: the path of the field, such as `components.0.type`.
        code: the code of the field's error.
    """
    errors: dict[str, Any] = {"_errors": [{"code": code, "message": message}]}
    for name in reversed(field.split(".")):
        errors = {name: errors}
    return DiscordError(400, INVALID_FORM_BODY, "Invalid Form Body", errors)


def parse_bool(query: Mapping[str, str], name: str) -> bool:
    """Return whether a query's parameter is `1`, `true` or `True`; False if missing."""
    return query.get(name) in ("1", "true", "True")


def parse_timestamp(name: str, text: str) -> datetime:
    """Parse a time in ISO format; without a time zone it is UTC.

    Args:
        name: name of the query parameter, for the error.

    Raises:
        DiscordError: 50035, the text is no time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise create_form_error(name, "DATE_TIME_TYPE_PARSE", f"Could not parse {text}.") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_snowflake(name: str, text: str) -> int:
    """Parse an id of Discord.

    Args:
        name: name of the parameter, for the error.

    Raises:
        DiscordError: 50035, the text is no number.
    """
    if not text.isdecimal():
        raise create_form_error(name, "NUMBER_TYPE_COERCE", f'Value "{text}" is not snowflake.')
    return int(text)


def parse_limit(query: Mapping[str, str], max_limit: int, *, default: int) -> int:
    """Return the page size in the parameter `limit` of a query, or else `default`.

    Raises:
        DiscordError: 50035, the limit is not a number from 1 to `max_limit`.
    """
    limit = query.get("limit", str(default))
    if not limit.isdecimal():
        raise create_form_error("limit", "NUMBER_TYPE_COERCE", f'Value "{limit}" is not int.')
    if int(limit) > max_limit:
        raise create_form_error("limit", "NUMBER_TYPE_MAX", f"int value should be less than or equal to {max_limit}.")
    if int(limit) < 1:
        raise create_form_error("limit", "NUMBER_TYPE_MIN", "int value should be greater than or equal to 1.")
    return int(limit)


def parse_page(query: Mapping[str, str], ids: Sequence[str], max_limit: int, *, default: int) -> Sequence[str]:
    """Return a page of ids: the first `limit` ones that are greater than `after`.

    `limit` and `after` are parameters of the query. Without `after`, the page starts with the first id.

    Args:
        ids: all ids, in ascending order.

    Raises:
        DiscordError: 50035, the limit is not a number from 1 to `max_limit`, or `after` is not an id.
    """
    limit = parse_limit(query, max_limit, default=default)
    after = parse_snowflake("after", query.get("after") or "0")
    return [id_ for id_ in ids if int(id_) > after][:limit]


@dataclass(frozen=True, slots=True)
class RequestFile:
    """Uploaded file of a multipart body.

    Attributes:
        field: the name of the file's part in the body (`files[0]`).
    """

    field: str
    name: str
    data: bytes
    content_type: str | None


@dataclass(frozen=True, slots=True)
class RequestBody:
    """Parsed body of a request to the REST API.

    Attributes:
        json: the parsed JSON; of a multipart body, that of `payload_json`. `{}` if it is missing.
        uploads: the files of a multipart body.
        is_form: whether the body was URL-encoded; `json` then has its fields.
    """

    json: Any
    uploads: Sequence[RequestFile] = ()
    is_form: bool = False

    @property
    def form(self) -> dict[str, Any]:
        """The JSON of the body as an object; empty for an empty body.

        Raises:
            DiscordError: 50109, the JSON is not an object.
        """
        if not isinstance(self.json, dict):
            raise DiscordError(400, INVALID_JSON, "The request body contains invalid JSON.")
        return self.json


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """Request to a route of the REST API.

    Attributes:
        path_ids: the ids in the path by their names in the route.
        authorization: the header `Authorization`.
    """

    path_ids: Mapping[str, str]
    query: Mapping[str, str]
    body: RequestBody
    authorization: str = ""

    @property
    def form(self) -> dict[str, Any]:
        return self.body.form


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """Response of a route of the REST API.

    Attributes:
        body: the JSON body; None for an empty one.
        status: the HTTP status.
    """

    body: Any = None
    status: int = 200


NO_CONTENT = ApiResponse(status=204)


async def parse_body(request: web.Request, *, accepts_form: bool = False) -> RequestBody:
    """Read and parse the JSON or multipart body of a request.

    Args:
        accepts_form: whether the body may also be URL-encoded.

    Raises:
        DiscordError: 40005, the body is too large; 50109, it is not JSON.
    """
    if (request.content_length or 0) > MAX_REQUEST_BYTES:
        raise DiscordError(413, REQUEST_TOO_LARGE, "Request entity too large")
    try:
        if request.content_type.startswith("multipart/"):
            return await _read_parts(request)
        if accepts_form and request.content_type == "application/x-www-form-urlencoded":
            return RequestBody(dict(await request.post()), is_form=True)
        raw = await request.read()
        return RequestBody(json.loads(raw) if raw else {})
    except ValueError:
        raise DiscordError(400, INVALID_JSON, "The request body contains invalid JSON.") from None


async def _read_parts(request: web.Request) -> RequestBody:
    body: Any = {}
    uploads: list[RequestFile] = []
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader):
            continue
        data = bytes(await part.read())
        if part.name == "payload_json":
            body = json.loads(data)
        elif part.filename:
            uploads.append(RequestFile(part.name or "", part.filename, data, part.headers.get("Content-Type")))
    return RequestBody(body, uploads)
