"""Arguments of a Web API call from a query, form or JSON body, and Slack's errors."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from aiohttp import web

from chatrig.slack.api.limits import MAX_PAGE_SIZE

T = TypeVar("T")


class SlackError(Exception):
    """Error response of Slack: `{"ok": false, "error": code}` with details.

    Attributes:
        code: the value of `error`.
        messages: "[ERROR] ..." lines for `response_metadata.messages`.
        errors: lines for the field `errors`, which only errors of blocks have.
        fields: further fields of the response.
    """

    def __init__(
        self, code: str, *, messages: list[str] | None = None, errors: list[str] | None = None, **fields: Any
    ) -> None:
        super().__init__(code)
        self.code = code
        self.messages = messages or [f"[ERROR] {line}" for line in errors or ()]
        self.errors = errors
        self.fields = fields

    def body(self) -> dict[str, Any]:
        """Return the JSON body of the error response.

        Its keys are `ok` (False), `error`, and those of `fields`; `errors` and `response_metadata` if they have lines.
        """
        body: dict[str, Any] = {"ok": False, "error": self.code} | self.fields
        if self.errors:
            body["errors"] = self.errors
        if self.messages:
            body["response_metadata"] = {"messages": self.messages}
        return body


#: Methods that accept a form or a query, not JSON. Slack: "Content types" on their pages, and `consumes` in
#: slackapi/slack-api-specs. `files.getUploadURLExternal` does so as measured (Octember/earshot #10), against its page.
FORM_METHODS = frozenset(
    {
        "bots.info",
        "chat.getPermalink",
        *(f"conversations.{name}" for name in ("history", "info", "list", "members", "replies")),
        "emoji.list",
        *(f"files.{name}" for name in ("getUploadURLExternal", "info", "list")),
        "pins.list",
        *("reactions.get", "reactions.list"),
        "team.info",
        "usergroups.list",
        *(f"users.{name}" for name in ("conversations", "info", "list", "lookupByEmail", "profile.get")),
    }
)


async def read_arguments(request: web.Request, *, accepts_json: bool = True) -> dict[str, Any]:
    """Return the arguments in a request's query and body (JSON or form), by name.

    An argument in the body replaces one in the query.

    Args:
        accepts_json: whether the method accepts JSON. Otherwise Slack does not read it, as measured:
            `conversations.replies` misses its arguments (Yeachan-Heo/gajae-code #3824), `users.list` ignores them
            (kortix-ai/suna #6616).

    Raises:
        SlackError: `invalid_json` or `json_not_object`.
    """
    arguments: dict[str, Any] = dict(request.query)
    if request.content_type != "application/json":
        return arguments | dict(await request.post())
    if not accepts_json:
        return arguments
    try:
        body = json.loads(await request.text() or "{}")
    except ValueError:
        raise SlackError("invalid_json") from None
    if not isinstance(body, dict):
        raise SlackError("json_not_object")
    return arguments | body


def with_charset_warning(body: dict[str, Any], request: web.Request) -> dict[str, Any]:
    """Return the JSON body of a response, with Slack's warning about the charset.

    The warning is added, in a copy, if the request is JSON without a charset, or a form with one. Otherwise, `body` is
    returned itself.

    Slack: docs.slack.dev/changelog/2016-09-28-response-metadata-is-on-the-way, slackapi/python-slack-sdk #692.
    """
    if request.content_type == "application/json" and request.charset is None:
        warning = "missing_charset"
    elif request.content_type == "application/x-www-form-urlencoded" and request.charset is not None:
        warning = "superfluous_charset"
    else:
        return body
    metadata = body.get("response_metadata", {})
    metadata = {**metadata, "warnings": [*metadata.get("warnings", ()), warning]}
    warnings = ",".join(filter(None, [body.get("warning"), warning]))
    return body | {"warning": warnings, "response_metadata": metadata}


class Arguments:
    """Arguments of one Web API call, read by type; null counts as missing.

    Each getter raises `SlackError("invalid_arguments")` for a value of a wrong type, as Slack does.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def omit(self, name: str) -> dict[str, Any]:
        """Return all arguments by name, without the argument `name`."""
        return {key: value for key, value in self._values.items() if key != name}

    def get_required(self, name: str) -> str:
        """Return an argument as text.

        Raises:
            SlackError: `invalid_arguments` if the argument is missing or empty.
        """
        if not (value := self.text(name)):
            raise SlackError("invalid_arguments", messages=[f"[ERROR] missing required field: {name}"])
        return value

    def text(self, name: str) -> str:
        """Return an argument as text, also if it is a number; "" if it is missing."""
        value = self._values.get(name)
        if value is None:
            return ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            raise self._invalid(name, "must be a string")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.optional_flag(name)
        return default if value is None else value

    def optional_flag(self, name: str) -> bool | None:
        """Return an argument as a boolean; None if it is missing.

        The texts `true`, `1`, `false` and `0`, in any letter case, are accepted.
        """
        value = self._values.get(name)
        if value is None or isinstance(value, bool):
            return value
        known = {"true": True, "1": True, "false": False, "0": False}
        if str(value).lower() not in known:
            raise self._invalid(name, "must be a boolean")
        return known[str(value).lower()]

    def number(self, name: str, *, default: int, max_value: int) -> int:
        """Return an argument as a positive integer, at most `max_value`.

        Args:
            default: the value if the argument is missing, "" or the JSON number 0.
            max_value: the result for a greater number.

        Raises:
            SlackError: `invalid_limit` if the number is less than 1, `invalid_arguments` if it is not a number.
        """
        try:
            value = int(self._values.get(name) or default)
        except (TypeError, ValueError):
            raise self._invalid(name, "must be an integer") from None
        if value < 1:
            raise SlackError("invalid_limit")
        return min(value, max_value)

    def json(self, name: str, *, error: str) -> Any:
        """Return the value of an argument that is JSON; None if it is missing or "".

        A text, as of a form field, is parsed; a value of a JSON body is returned unchanged.

        Raises:
            SlackError: with code `error` for invalid JSON in a form field.
        """
        value = self._values.get(name)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value else None
        except ValueError:
            raise SlackError(error) from None

    @staticmethod
    def _invalid(name: str, reason: str) -> SlackError:
        return SlackError("invalid_arguments", messages=[f"[ERROR] {reason} [json-pointer:/{name}]"])


def parse_ts(arguments: Arguments, name: str) -> Decimal | None:
    """Return a timestamp argument as a number of seconds; None if it is missing or "".

    Raises:
        SlackError: `invalid_ts_NAME`, with the name of the argument, if it is not a number.
    """
    value = arguments.text(name)
    try:
        return Decimal(value) if value else None
    except InvalidOperation:
        raise SlackError(f"invalid_ts_{name}") from None


def paginate(
    items: Sequence[T], key: Callable[[T], str], arguments: Arguments, *, default: int, max_size: int = MAX_PAGE_SIZE
) -> tuple[Sequence[T], str]:
    """Return the items of the page that the arguments `limit` and `cursor` select.

    Args:
        key: returns the part of an item that its cursor encodes, such as its id.
        default: the page size without `limit`.
        max_size: the greatest page size, also for a greater `limit`.

    Returns:
        The items, and the cursor of the next page; "" for none.

    Raises:
        SlackError: `invalid_limit`, or `invalid_cursor` if no item has this cursor.
    """
    limit = arguments.number("limit", default=min(default, max_size), max_value=max_size)
    names = [b64encode(f"next:{key(item)}".encode()).decode() for item in items]
    start = 0
    if cursor := arguments.text("cursor"):
        if cursor not in names:
            raise SlackError("invalid_cursor")
        start = names.index(cursor)
    end = start + limit
    return items[start:end], names[end] if end < len(items) else ""


def select_page(items: Sequence[T], arguments: Arguments) -> tuple[Sequence[T], dict[str, int]]:
    """Return the items of the page that the arguments `count` and `page` select.

    The default is the first page of 100 items. A page after the last one has no items. Either argument counts as
    `MAX_PAGE_SIZE` if it is greater.

    Returns:
        The items, and the field `paging` of the response with `count` (page size), `total` (items), `page` and `pages`.

    Raises:
        SlackError: `invalid_limit` if one of the arguments is less than 1.
    """
    count = arguments.number("count", default=100, max_value=MAX_PAGE_SIZE)
    page = arguments.number("page", default=1, max_value=MAX_PAGE_SIZE)
    paging = {"count": count, "total": len(items), "page": page, "pages": -(-len(items) // count)}
    return items[(page - 1) * count : page * count], paging
