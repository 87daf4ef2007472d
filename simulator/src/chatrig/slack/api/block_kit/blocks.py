"""Checks of Block Kit blocks and views, with Slack's limits.

Slack: docs.slack.dev/reference/block-kit and docs.slack.dev/reference/views; newer blocks by @slack/types 3.2. Slack
refuses unknown fields: "invalid additional property: disabled" (slackapi/bolt-js #1891). Only the type of
`UNCHECKED_BLOCKS` is checked: their limits are not published.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

from chatrig.slack.api.block_kit.elements import (
    BUTTONS,
    CONTEXT_BUTTONS,
    ID,
    IMAGE,
    IMAGE_ELEMENT,
    MENUS,
    RICH_TEXT,
    TEXT_INPUTS,
    TEXTS,
    TYPE,
    URL,
    any_text,
    text,
)
from chatrig.slack.api.block_kit.shapes import (
    Check,
    anything,
    boolean,
    integer,
    items,
    nullable,
    number,
    shape,
    string,
    variants,
)
from chatrig.slack.api.requests import SlackError

MAX_BLOCKS, MAX_VIEW_BLOCKS = 50, 100
#: The sum of all `markdown` blocks of a message.
MAX_MARKDOWN_BLOCK_CHARS = 12_000
#: All blocks of a message as JSON; `msg_blocks_too_long` is undocumented, but reported.
MAX_BLOCKS_JSON_CHARS = 13_200
MAX_VIEW_BYTES = 250_000


def _block(
    required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, one_of: Collection[str] = ()
) -> Check:
    return shape({**TYPE, **required}, {"block_id": ID, **(optional or {})}, one_of=one_of)


_ONE_IMAGE = variants(IMAGE_ELEMENT)
_SHARED_BLOCKS: dict[str, Check] = {
    "actions": _block(
        {"elements": items(variants(BUTTONS | MENUS | {"rich_text_input": TEXT_INPUTS["rich_text_input"]}), 1, 25)}
    ),
    "context": _block({"elements": items(variants(IMAGE_ELEMENT | TEXTS), 1, 10)}),
    "divider": _block({}),
    "header": _block({"text": text(150)}, {"level": integer(1, 4)}),
    "image": _block(IMAGE[0], {**IMAGE[1], "title": text(2_000)}, one_of=tuple(IMAGE[1])),
    "input": _block(
        {"label": text(2_000), "element": variants(MENUS | TEXT_INPUTS)},
        {"hint": text(2_000), "optional": boolean, "dispatch_action": boolean},
    ),
    "rich_text": RICH_TEXT,
    "section": _block(
        {},
        {
            "text": any_text(3_000),
            "fields": items(any_text(2_000), 1, 10),
            "accessory": variants(BUTTONS | MENUS | IMAGE_ELEMENT),
            "expand": boolean,
        },
        one_of=("text", "fields"),
    ),
    "video": _block(
        {
            "alt_text": string(2_000, min_chars=1),
            "video_url": string(3_000),
            "thumbnail_url": string(3_000),
            "title": text(200),
        },
        {
            "title_url": URL,
            "author_name": string(50),
            "provider_name": string(),
            "provider_icon_url": URL,
            "description": text(200),
        },
    ),
}
_NUMBER_CELL = shape(TYPE | {"value": number, "text": string(min_chars=1)})
_CELLS = {"raw_text": shape(TYPE | {"text": string(min_chars=1)}), "raw_number": _NUMBER_CELL, "rich_text": RICH_TEXT}
_COLUMN = shape({}, {"align": string(choices=("left", "center", "right")), "is_wrapped": boolean})
MAX_TABLE_ROWS, MAX_TABLE_COLUMNS = 100, 20
_TABLE = _block(
    {"rows": items(items(variants(_CELLS), 0, MAX_TABLE_COLUMNS), 1, MAX_TABLE_ROWS)},
    {"column_settings": items(nullable(_COLUMN), 0, MAX_TABLE_COLUMNS)},
)
_CODE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
_DELIMITER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")


def _check_markdown(value: Any, path: str) -> Iterator[str]:
    """Check the text of a `markdown` block, with the limits of a `table` block for each table in it.

    Slack translates the block into others: docs.slack.dev/reference/block-kit/blocks/markdown-block. The limits of its
    tables are not published.
    """
    yield from string(MAX_MARKDOWN_BLOCK_CHARS, min_chars=1)(value, path)
    lines = _CODE.sub("", value).split("\n") if isinstance(value, str) and "|" in value else []
    for end, (head, line) in enumerate(pairwise(lines), 2):
        if "|" in head and "|" in line and _DELIMITER.fullmatch(line):
            rows = 1 + len(list(takewhile(str.strip, lines[end:])))
            columns = line.strip().strip("|").count("|") + 1
            for count, limit in ((rows, MAX_TABLE_ROWS), (columns, MAX_TABLE_COLUMNS)):
                if count > limit:
                    yield f"no more than {limit} items allowed [json-pointer:{path}]"
                    return


#: `subtext` and `slack_icon` as in slackapi/java-slack-sdk #1624.
_CARD = _block(
    {},
    {
        "hero_image": _ONE_IMAGE,
        "icon": _ONE_IMAGE,
        "slack_icon": shape(TYPE | {"name": string()}),
        "title": any_text(150),
        "subtitle": any_text(150),
        "body": any_text(200),
        "subtext": any_text(200),
        "actions": items(variants({"button": BUTTONS["button"]})),
    },
    one_of=("hero_image", "title", "actions", "body"),
)
_SOURCE = variants({"url": shape(TYPE | {"url": URL, "text": string(min_chars=1)})})
_TASK = _block(
    {"task_id": string(), "title": string()},
    {
        "details": RICH_TEXT,
        "output": RICH_TEXT,
        "sources": items(_SOURCE),
        "status": string(choices=("pending", "in_progress", "complete", "error")),
    },
)
_CHILD_BLOCKS = variants(_SHARED_BLOCKS | {"table": _TABLE, "file": anything})
_CONTAINER = _block(
    {"child_blocks": items(_CHILD_BLOCKS, 1, 10)},
    {
        "title": text(150),
        "rich_text_title": RICH_TEXT,
        "subtitle": any_text(150),
        "width": string(choices=("narrow", "standard", "wide", "full")),
        "icon": _ONE_IMAGE,
        **dict.fromkeys(("is_collapsible", "default_collapsed", "has_header_divider"), boolean),
    },
    one_of=("title", "rich_text_title"),
)
UNCHECKED_BLOCKS = frozenset({"auth_provider", "call", "data_visualization", "file"})
_MESSAGE_BLOCKS: dict[str, Check] = {
    **_SHARED_BLOCKS,
    **dict.fromkeys(UNCHECKED_BLOCKS, anything),
    "card": _CARD,
    "carousel": _block({"elements": items(variants({"card": _CARD}), 1, 10)}),
    "container": _CONTAINER,
    "context_actions": _block({"elements": items(variants(CONTEXT_BUTTONS), 1, 5)}),
    # The numbers of rows and cells: `DataTableBlock` of slackapi/java-slack-sdk.
    "data_table": _block(
        {"rows": items(items(variants(_CELLS), 1, 20), 2, 101), "caption": string(min_chars=1)},
        {"page_size": integer(1, 100), "row_header_column_index": integer(0, 19)},
    ),
    "markdown": _block({"text": _check_markdown}),
    "plan": _block({"title": string()}, {"tasks": items(variants({"task_card": _TASK}))}),
    "table": _TABLE,
    "task_card": _TASK,
}
_VIEW = {"private_metadata": string(3_000), "callback_id": ID, "external_id": ID}
#: "The AlertBlock is only supported in modal views" (slackapi/node-slack-sdk #2567).
_MODAL_BLOCKS = _SHARED_BLOCKS | {
    "alert": _block(
        {"text": any_text(200)}, {"level": string(choices=("default", "info", "warning", "error", "success"))}
    )
}
_VIEWS = {
    "modal": shape(
        TYPE | {"title": text(24), "blocks": items(variants(_MODAL_BLOCKS), 0, MAX_VIEW_BLOCKS)},
        {
            **_VIEW,
            "submit": text(24),
            "close": text(24),
            **dict.fromkeys(("clear_on_close", "notify_on_close", "submit_disabled"), boolean),
        },
    ),
    "home": shape(TYPE | {"blocks": items(variants(_SHARED_BLOCKS), 0, MAX_VIEW_BLOCKS)}, _VIEW),
}
_BLOCKS_OF_MESSAGE = items(variants(_MESSAGE_BLOCKS), 0, MAX_BLOCKS)


def check_blocks(blocks: object, *, path: str = "/blocks", error: str = "invalid_blocks") -> list[dict[str, Any]]:
    """Return the blocks of a message unchanged if Slack would accept them.

    Args:
        path: the JSON pointer of the blocks, for the errors.
        error: the code for blocks with errors.

    Raises:
        SlackError: `invalid_blocks_format`, `msg_blocks_too_long` or `error`.
    """
    if not isinstance(blocks, list) or not all(isinstance(b, dict) and "type" in b for b in blocks):
        raise SlackError("invalid_blocks_format")
    errors = [*_BLOCKS_OF_MESSAGE(blocks, path), *_find_duplicate_ids(blocks, path)]
    if sum(len(str(b.get("text", ""))) for b in blocks if b["type"] == "markdown") > MAX_MARKDOWN_BLOCK_CHARS:
        errors.append(
            f"markdown blocks must be less than {MAX_MARKDOWN_BLOCK_CHARS + 1} characters [json-pointer:{path}]"
        )
    if errors:
        raise SlackError(error, errors=errors)
    if len(json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))) > MAX_BLOCKS_JSON_CHARS:
        raise SlackError("msg_blocks_too_long")
    return blocks


def check_view(view: object, kind: str) -> dict[str, Any]:
    """Return a view's JSON unchanged if Slack would accept it.

    Args:
        kind: `modal` or `home`.

    Raises:
        SlackError: `invalid_arguments` or `view_too_large`.
    """
    if not isinstance(view, dict) or view.get("type") != kind:
        raise SlackError("invalid_arguments", messages=[f"[ERROR] must be a {kind} [json-pointer:/view/type]"])
    if len(json.dumps(view, ensure_ascii=False).encode()) > MAX_VIEW_BYTES:
        raise SlackError("view_too_large")
    errors = list(_VIEWS[kind](view, "/view"))
    if not errors:
        errors += _find_duplicate_ids(view["blocks"], "/view/blocks")
        if kind == "modal" and not view.get("submit") and any(block["type"] == "input" for block in view["blocks"]):
            errors.append("missing required field: submit [json-pointer:/view]")
    if errors:
        raise SlackError("invalid_arguments", messages=[f"[ERROR] {line}" for line in errors])
    return view


def _find_duplicate_ids(blocks: Sequence[Mapping[str, Any]], path: str) -> Iterator[str]:
    """Yield an error line for each `block_id` or `action_id` that occurs twice.

    An `action_id` may occur in several blocks, but only once in each.

    Args:
        path: the JSON pointer of the blocks.
    """
    for id_, count in Counter(block.get("block_id") for block in blocks).items():
        if id_ and count > 1:
            yield f"`block_id` {id_} already exists [json-pointer:{path}]"
    for index, block in enumerate(blocks):
        elements = block.get("elements") if block["type"] in ("actions", "context_actions") else None
        ids = Counter(e.get("action_id") for e in elements or () if isinstance(e, dict))
        for id_, count in ids.items():
            if id_ and count > 1:
                yield f"`action_id` {id_} already exists [json-pointer:{path}/{index}/elements]"
