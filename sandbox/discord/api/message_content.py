"""What a message may say: from the body of a request to its content, or why it is refused.

Discord: docs.discord.com/developers/resources/message. Whether it counts characters as code points is not published;
the sandbox does.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.discord.api.requests import EMPTY_MESSAGE, TOO_LARGE, DiscordError, RequestBody, invalid
from sandbox.discord.state.components import walked
from sandbox.discord.state.guild import DiscordAttachment, DiscordContent
from sandbox.discord.state.snowflakes import new_id

TEXT = 2000
EMBEDS, EMBED_TEXT, ALL_EMBEDS_TEXT = 10, 4096, 6000
ROWS = 5
FILES, FILE_SIZE = 10, 10 * 2**20
NONCE = 25
MENTIONS = 100

_EMBED_SIZES = {"title": 256, "description": EMBED_TEXT}
_FILE = re.compile(r"files\[(\d+)\]")


def content_of(body: RequestBody, form: Mapping[str, Any], before: DiscordContent | None = None) -> DiscordContent:
    """The content that a request sends, or (`before`) edits a message to: what it does not name stays.

    Raises:
        DiscordError: it is too much, not well formed, or nothing.
    """
    old = before or DiscordContent()
    content = DiscordContent(
        text=_text(form) if "content" in form else old.text,
        embeds=_embeds(form) if "embeds" in form else old.embeds,
        components=_components(form) if "components" in form else old.components,
        attachments=_attachments(body, form, old.attachments),
        allowed_mentions=_allowed_mentions(form.get("allowed_mentions")),
    )
    if not (content.text.strip() or content.embeds or content.attachments or content.components):
        raise DiscordError(400, EMPTY_MESSAGE, "Cannot send an empty message")
    return content


def _text(form: Mapping[str, Any]) -> str:
    text = form["content"]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise invalid("content", "STRING_TYPE_CONVERT", "Could not interpret this as string.")
    _check_length("content", text, TEXT)
    return text


def _check_length(field: str, value: Sequence[Any], most: int) -> None:
    if len(value) > most:
        raise invalid(field, "BASE_TYPE_MAX_LENGTH", f"Must be {most} or fewer in length.")


def _objects(form: Mapping[str, Any], field: str, most: int) -> list[dict[str, Any]]:
    values = form[field] or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise invalid(field, "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
    _check_length(field, values, most)
    return values


def _embeds(form: Mapping[str, Any]) -> list[dict[str, Any]]:
    embeds = _objects(form, "embeds", EMBEDS)
    total = 0
    for number, embed in enumerate(embeds):
        for field, most in _EMBED_SIZES.items():
            _check_length(f"embeds.{number}.{field}", str(embed.get(field) or ""), most)
        total += sum(len(str(embed.get(field) or "")) for field in _EMBED_SIZES)
        total += sum(len(str(field.get(part))) for field in embed.get("fields") or () for part in ("name", "value"))
        total += len((embed.get("footer") or {}).get("text") or "") + len((embed.get("author") or {}).get("name") or "")
    if total > ALL_EMBEDS_TEXT:
        raise invalid("embeds", "MAX_EMBED_SIZE_EXCEEDED", f"Embed size exceeds maximum size of {ALL_EMBEDS_TEXT}")
    return embeds


def _components(form: Mapping[str, Any]) -> list[dict[str, Any]]:
    components = _objects(form, "components", ROWS)
    names = [component["custom_id"] for component in walked(components) if component.get("custom_id")]
    if len(set(names)) < len(names):
        raise invalid("components", "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
    if any(len(name) > 100 for name in names):
        raise invalid("components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
    return components


def _attachments(
    body: RequestBody, form: Mapping[str, Any], old: Sequence[DiscordAttachment]
) -> list[DiscordAttachment]:
    """The files that come along, after those of the message that the form names, or all if it names none."""
    about = form.get("attachments")
    described = {str(entry.get("id")): entry for entry in about or ()}
    kept = [file for file in old if about is None or file.id in described]
    new = []
    for upload in body.uploads:
        if len(upload.data) > FILE_SIZE:
            raise DiscordError(413, TOO_LARGE, "Request entity too large")
        found = _FILE.fullmatch(upload.field)
        entry = described.get(found[1], {}) if found else {}
        name = entry.get("filename") or upload.name
        new.append(DiscordAttachment(new_id(), name, upload.data, upload.content_type, entry.get("description")))
    _check_length("attachments", [*kept, *new], FILES)
    return [*kept, *new]


def _allowed_mentions(given: Any) -> Mapping[str, Any] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise invalid("allowed_mentions", "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType")
    parse = given.get("parse") or []
    for kind in ("users", "roles"):
        listed = given.get(kind) or []
        _check_length(f"allowed_mentions.{kind}", listed, MENTIONS)
        if kind in parse and listed:
            message = f'parse:["{kind}"] and {kind}: [ids...] are mutually exclusive.'
            raise invalid("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", message)
    if unknown := set(parse) - {"users", "roles", "everyone"}:
        message = f"Value must be one of {{'users', 'roles', 'everyone'}}, not {min(unknown)}."
        raise invalid("allowed_mentions.parse", "BASE_TYPE_CHOICES", message)
    return given


def nonce_of(form: Mapping[str, Any]) -> str | int | None:
    """The name that the sender gave to the message.

    Raises:
        DiscordError: it is too long, or neither text nor number.
    """
    nonce = form.get("nonce")
    if nonce is not None and (not isinstance(nonce, str | int) or len(str(nonce)) > NONCE):
        raise invalid("nonce", "NONCE_TYPE_TOO_LONG", f"Nonce must be {NONCE} or fewer in length.")
    return nonce
