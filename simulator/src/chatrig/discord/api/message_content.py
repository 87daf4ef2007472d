"""Parser of message bodies: text, embeds, components, files and mentions.

Discord: docs.discord.com/developers/resources/message. Discord does not publish the unit of its length limits; the
simulator counts code points.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from mimetypes import guess_type
from typing import Any

from chatrig.discord.api.component_rules import (
    IS_COMPONENTS_V2,
    MAX_COMPONENTS,
    check_components,
    check_embed,
    check_legacy_fields,
)
from chatrig.discord.api.files import clean_file_name
from chatrig.discord.api.requests import EMPTY_MESSAGE, REQUEST_TOO_LARGE, DiscordError, RequestBody, create_form_error
from chatrig.discord.state.components import list_media
from chatrig.discord.state.messages import DiscordAttachment, DiscordContent, DiscordPoll, iterate_components
from chatrig.discord.state.snowflakes import create_id

MAX_TEXT_LENGTH = 2000
MAX_EMBEDS, MAX_EMBED_DESCRIPTION_LENGTH, MAX_EMBEDS_TEXT_LENGTH = 10, 4096, 6000
MAX_FILES, MAX_FILE_BYTES = 10, 10 * 2**20
MAX_NONCE_LENGTH = 25
MAX_POLL_QUESTION_LENGTH, MAX_POLL_ANSWER_LENGTH, DEFAULT_POLL_HOURS = 300, 55, 24
MAX_ALLOWED_MENTIONS = 100

_MAX_EMBED_LENGTHS = {"title": 256, "description": MAX_EMBED_DESCRIPTION_LENGTH}
_FILE_FIELD = re.compile(r"files\[(\d+)\]")


def parse_content(
    body: RequestBody, form: Mapping[str, Any], current: DiscordContent | None = None, *, flags: int = 0
) -> DiscordContent:
    """Return the content of a message that a request posts or edits.

    Args:
        form: the object with the message's fields, the whole body or a part of it.
        current: the content that an edit changes; None for a post. The fields that the form omits stay, except
            `allowed_mentions`. An edit cannot remove stickers or a poll.
        flags: the flags that the message has already.

    Raises:
        DiscordError: 40005 (a file is too large), 50006 (the content is empty) or 50035 (a field is invalid).
    """
    old = current or DiscordContent()
    content = DiscordContent(
        text=_parse_text(form) if "content" in form else old.text,
        embeds=_parse_embeds(form) if "embeds" in form else old.embeds,
        components=_parse_components(form) if "components" in form else old.components,
        attachments=_parse_attachments(body, form, old.attachments),
        stickers=[str(sticker) for sticker in form.get("sticker_ids") or ()] or old.stickers,
        poll=_parse_poll(form["poll"]) if form.get("poll") else old.poll,
        allowed_mentions=_parse_allowed_mentions(form.get("allowed_mentions")),
    )
    flags |= int(form.get("flags") or 0)
    if flags & IS_COMPONENTS_V2:
        check_legacy_fields({**form, "content": content.text, "embeds": content.embeds})
    check_components(content.components, flags, {file.name for file in content.attachments})
    shown = (
        content.text.strip(),
        content.embeds,
        content.attachments,
        content.components,
        content.stickers,
        content.poll,
    )
    if not any(shown):
        raise DiscordError(400, EMPTY_MESSAGE, "Cannot send an empty message")
    return content


def _parse_text(form: Mapping[str, Any]) -> str:
    text = form["content"]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise create_form_error("content", "STRING_TYPE_CONVERT", "Could not interpret this as string.")
    _check_length("content", text, MAX_TEXT_LENGTH)
    return text


def _check_length(field: str, value: Sequence[Any], max_length: int) -> None:
    if len(value) > max_length:
        raise create_form_error(field, "BASE_TYPE_MAX_LENGTH", f"Must be {max_length} or fewer in length.")


def _parse_objects(form: Mapping[str, Any], field: str, max_length: int) -> list[dict[str, Any]]:
    values = form[field] or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise create_form_error(field, "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
    _check_length(field, values, max_length)
    return values


def _parse_embeds(form: Mapping[str, Any]) -> list[dict[str, Any]]:
    embeds = _parse_objects(form, "embeds", MAX_EMBEDS)
    total = 0
    for number, embed in enumerate(embeds):
        for field, max_length in _MAX_EMBED_LENGTHS.items():
            _check_length(f"embeds.{number}.{field}", str(embed.get(field) or ""), max_length)
        check_embed(f"embeds.{number}", embed)
        total += sum(len(str(embed.get(field) or "")) for field in _MAX_EMBED_LENGTHS)
        total += sum(len(str(field.get(part))) for field in embed.get("fields") or () for part in ("name", "value"))
        total += len((embed.get("footer") or {}).get("text") or "") + len((embed.get("author") or {}).get("name") or "")
    if total > MAX_EMBEDS_TEXT_LENGTH:
        raise create_form_error(
            "embeds", "MAX_EMBED_SIZE_EXCEEDED", f"Embed size exceeds maximum size of {MAX_EMBEDS_TEXT_LENGTH}"
        )
    return embeds


def _parse_components(form: Mapping[str, Any]) -> list[dict[str, Any]]:
    components = _parse_objects(form, "components", MAX_COMPONENTS)
    names = [component["custom_id"] for component in iterate_components(components) if component.get("custom_id")]
    if len(set(names)) < len(names):
        raise create_form_error(
            "components", "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated"
        )
    ids = [component["id"] for component in iterate_components(components) if component.get("id")]
    if len(set(ids)) < len(ids):
        raise create_form_error("components", "COMPONENT_ID_DUPLICATED", "Component id cannot be duplicated")
    if any(len(name) > 100 for name in names):
        raise create_form_error("components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
    for component in iterate_components(components):
        for path, holder in list_media(component):
            media = holder[path.split(".")[-2]]
            if media["url"].startswith("attachment://"):
                media["url"] = f"attachment://{clean_file_name(media['url'].removeprefix('attachment://'))}"
    return components


def _parse_poll(form: Mapping[str, Any]) -> DiscordPoll:
    """Parse the field `poll` of a message.

    Discord: docs.discord.com/developers/resources/poll. A question has at most 300 characters, an answer 55.

    Raises:
        DiscordError: 50035, a text is too long or missing.
    """
    question = (form["question"] or {}).get("text") or ""
    _check_length("poll.question.text", question, MAX_POLL_QUESTION_LENGTH)
    if not question:
        raise create_form_error("poll.question.text", "BASE_TYPE_REQUIRED", "This field is required")
    answers: list[Mapping[str, Any]] = []
    for number, answer in enumerate(form["answers"]):
        media = {name: value for name, value in answer["poll_media"].items() if value and name in ("text", "emoji")}
        _check_length(f"poll.answers.{number}.poll_media.text", media.get("text", ""), MAX_POLL_ANSWER_LENGTH)
        if not media:
            raise create_form_error(f"poll.answers.{number}.poll_media", "BASE_TYPE_REQUIRED", "This field is required")
        if emoji := media.get("emoji"):
            media["emoji"] = {"id": emoji.get("id"), "name": emoji.get("name")}
        answers.append(media)
    expires_at = datetime.now(UTC) + timedelta(hours=form.get("duration") or DEFAULT_POLL_HOURS)
    return DiscordPoll(question, answers, bool(form.get("allow_multiselect")), expires_at)


def _parse_attachments(
    body: RequestBody, form: Mapping[str, Any], current: Sequence[DiscordAttachment]
) -> list[DiscordAttachment]:
    """Return the attachments of a message: those that an edit retains, then uploads.

    Args:
        current: the attachments before the edit.

    Raises:
        DiscordError: a file is too large, or there are too many.
    """
    entries = form.get("attachments")
    entries_by_id = {str(entry.get("id")): entry for entry in entries or ()}
    retained = [file for file in current if entries is None or file.id in entries_by_id]
    new = []
    for upload in body.uploads:
        if len(upload.data) > MAX_FILE_BYTES:
            raise DiscordError(413, REQUEST_TOO_LARGE, "Request entity too large")
        field_match = _FILE_FIELD.fullmatch(upload.field)
        entry = entries_by_id.get(field_match[1], {}) if field_match else {}
        name = clean_file_name(entry.get("filename") or upload.name)
        # Clients send application/octet-stream or nothing for many files; Discord reports the type by name.
        kind = guess_type(name)[0] or upload.content_type
        new.append(DiscordAttachment(create_id(), name, upload.data, kind, entry.get("description")))
    _check_length("attachments", [*retained, *new], MAX_FILES)
    return [*retained, *new]


def _parse_allowed_mentions(value: Any) -> Mapping[str, Any] | None:
    """Return the valid object `allowed_mentions` unchanged; None for null.

    Args:
        value: the field of the request; None if it is missing.

    Raises:
        DiscordError: 50035, the object is malformed or contradicts itself.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise create_form_error(
            "allowed_mentions", "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType"
        )
    parse = value.get("parse") or []
    for kind in ("users", "roles"):
        listed = value.get(kind) or []
        _check_length(f"allowed_mentions.{kind}", listed, MAX_ALLOWED_MENTIONS)
        if kind in parse and listed:
            message = f'parse:["{kind}"] and {kind}: [ids...] are mutually exclusive.'
            raise create_form_error("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", message)
    if unknown := set(parse) - {"users", "roles", "everyone"}:
        message = f"Value must be one of {{'users', 'roles', 'everyone'}}, not {min(unknown)}."
        raise create_form_error("allowed_mentions.parse", "BASE_TYPE_CHOICES", message)
    return value


def parse_nonce(form: Mapping[str, Any]) -> str | int | None:
    """Return the nonce in a message's form, a text or a number; None without one.

    Raises:
        DiscordError: 50035, the nonce is too long, or neither text nor number.
    """
    nonce = form.get("nonce")
    if nonce is not None and (not isinstance(nonce, str | int) or len(str(nonce)) > MAX_NONCE_LENGTH):
        raise create_form_error("nonce", "NONCE_TYPE_TOO_LONG", f"Nonce must be {MAX_NONCE_LENGTH} or fewer in length.")
    return nonce
