"""Conversion of ADK events to rows of `messages` and back."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from google.adk.events.event import Event
from google.genai import types
from pydantic_core import PydanticSerializationError, from_json, to_json

from core.models.tool_calls import part_text, read_signature, unique_id
from core.observability.secret_redaction import RunSecrets
from core.store.errors import name_row
from core.store.schema import messages

#: The most bytes of one file that are stored in an event. More bytes are stored in `blobs`, once per session.
MAX_INLINE_BYTES = 1024

#: Beginning of the bytes that replace a file in a stored event (a reference); the file's SHA-256 follows.
BLOB_PREFIX = b"parley-blob:sha256:"

#: Fields of ADK's `Event` that describe an event and have none of its content.
_METADATA_FIELDS = {
    "id",
    "timestamp",
    "invocation_id",
    "author",
    "branch",
    "isolation_scope",
    "node_info",
    "partial",
    "turn_complete",
    "long_running_tool_ids",
}

#: Prefix of the id of an ADK event with a message that its author sent while the run was in progress.
STEERING_PREFIX = "steering:"

#: Roles of the messages of people: one that begins a run, and one that a run in progress has read.
USER_ROLES = ("user", "steering")

#: The roles of messages that a search covers.
SEARCHABLE_ROLES = (*USER_ROLES, "assistant")

_IMAGE_TOKENS = 1_000  # between Gemini's 258 a tile and Anthropic's 1,600 for the largest

#: Orders of the messages of one session, both by the index.
NEWEST_FIRST = messages.c.session.desc(), messages.c.id.desc()
OLDEST_FIRST = messages.c.session, messages.c.id


class EncodedEvent(NamedTuple):
    """An ADK event that can be stored, with its database columns and large files.

    Attributes:
        event: without characters that UTF-8 cannot encode.
        row: the columns of `messages` by name, with the SHA-256 of each file in `blobs`, not its bytes.
        blobs: the files of more than `MAX_INLINE_BYTES`, by their SHA-256; to be stored with the row.
    """

    event: Event
    row: dict[str, Any]
    blobs: Mapping[str, bytes]


def is_state_only(event: Event) -> bool:
    """Return whether an event has nothing but a state change, or nothing; ids, author, time and branch do not count."""
    if event.content is not None:
        return False
    rest = event.model_dump(
        exclude={**dict.fromkeys(_METADATA_FIELDS, True), "actions": {"state_delta"}},
        exclude_none=True,
        exclude_defaults=True,
    )
    return not rest or rest == {"actions": {}}


def get_role(event: Event) -> str:
    """Return the role of an ADK event for `messages.role`; `event` without content."""
    if event.content is None or not event.content.parts:
        return "event"
    if event.get_function_responses():
        return "tool"
    if event.id.startswith(STEERING_PREFIX):
        return "steering"
    return "user" if event.author == "user" else "assistant"


def encode_event(event: Event) -> EncodedEvent:
    """Return an ADK event with its columns of `messages` and its large files; store nothing.

    The event is the same one, or a copy with U+FFFD for lone surrogates, which UTF-8 cannot encode. The caller stores
    the `blobs`, and sets the column `tokens`, which is 0.

    Raises:
        PydanticSerializationError: a call or response has a value that JSON cannot hold, such as bytes that are not
            UTF-8.
    """
    blobs: dict[str, bytes] = {}
    try:
        return EncodedEvent(event, to_row(event, blobs), blobs)
    except (PydanticSerializationError, UnicodeEncodeError):
        event = Event.model_validate(_replace_surrogates(event.model_dump(exclude_none=True, exclude_defaults=True)))
        return EncodedEvent(event, to_row(event, blobs), blobs)


def to_json_value(value: Any) -> Any:
    """Return a Python value converted to JSON values.

    NaN and infinity become None, a lone surrogate becomes U+FFFD, bytes become their text, and an object of an unknown
    type becomes its `repr`.

    Raises:
        ValueError: `value` has bytes that are not UTF-8, an integer of over 4,300 digits, or more than 200 levels of
            nesting, as one that contains itself.
    """
    try:
        return from_json(to_json(_replace_surrogates(value), inf_nan_mode="null", serialize_unknown=True))
    except RecursionError:
        raise ValueError("the value has too many levels of nesting") from None


def to_row(event: Event, blobs: dict[str, bytes] | None = None, *, tokens: int = 0) -> dict[str, Any]:
    """Return the values of the columns of `messages` for an ADK event, by column name.

    ADK's `error_message`, the text of a model provider's error, is left out. The result lacks the columns `id`,
    `session`, `generation`, `attribution` and `summarized_id`.

    Args:
        blobs: gets the event's files of more than `MAX_INLINE_BYTES` by SHA-256; the columns have only the hash. None
            for an event that was read from a row, and has only hashes.

    Raises:
        PydanticSerializationError: the event has a lone surrogate, or a value that JSON cannot hold: see
            `encode_event`.
    """

    def to_reference(data: bytes) -> bytes:
        if blobs is None or (len(data) <= MAX_INLINE_BYTES and not data.startswith(BLOB_PREFIX)):
            return data
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return BLOB_PREFIX + digest.encode()

    stored_event = _replace_bytes(event, to_reference)
    role, content = get_role(event), _get_text(event).replace("\0", "\ufffd")  # PostgreSQL: a text cannot hold NUL
    return {
        "role": role,
        "author": event.author,
        "content": content,
        "search_text": to_folded_column(content) if role in SEARCHABLE_ROLES else None,
        "tool_calls": _list_tool_calls(event),
        "created_at": event.timestamp,
        "invocation_id": event.invocation_id,
        "event_id": event.id,
        "event": stored_event.model_dump_json(exclude_none=True, exclude_defaults=True, exclude={"error_message"}),
        "unmasked": None,
        "long_running_calls": _get_long_running_calls(event),
        "tokens": tokens,
    }


def mask_row(row: Mapping[str, Any], secrets: RunSecrets) -> dict[str, Any]:
    """Return the columns from `to_row`, with the secrets of the run masked.

    If a secret was masked, `unmasked` has the columns as the run itself reads them (`event`, `content` and
    `attribution`) and the `secrets` so far.
    """
    event = None if secrets.is_empty else parse_event(row["event"], 0)
    masked = None if event is None else mask_event(event, secrets)
    if masked is None or masked == event:
        return dict(row)
    unmasked = {"event": row["event"], "content": row["content"], "attribution": row.get("attribution")}
    return {**row, **to_row(masked, tokens=row["tokens"]), "unmasked": {**unmasked, "secrets": secrets.to_json()}}


def mask_event(event: Event, secrets: RunSecrets) -> Event:
    """Return an ADK event of a run with masks for the secrets of the run.

    Ids, names and files stay. A thought with a secret loses its signature: its vendor would refuse the changed text. So
    does a part with a secret in its signature.
    """
    if secrets.is_empty:
        return event
    actions = event.actions
    content = event.content
    if content is not None:
        content = _mask_content(content, secrets)
        if prompt := secrets.prompts.get(event.id):
            first, *others = content.parts or [types.Part()]
            content = content.model_copy(update={"parts": [first.model_copy(update={"text": prompt}), *others]})
    compaction = actions.compaction
    if compaction is not None:
        summary = _mask_content(compaction.compacted_content, secrets)
        compaction = compaction.model_copy(update={"compacted_content": summary})
    changed: dict[str, Any] = {"compaction": compaction, "state_delta": secrets.mask(actions.state_delta)}
    changed["agent_state"] = secrets.mask(actions.agent_state)
    actions = actions.model_copy(update=changed)
    return event.model_copy(update={"content": content, "actions": actions, "output": secrets.mask(event.output)})


def _mask_content(content: types.Content, secrets: RunSecrets) -> types.Content:
    parts = content.parts and [_mask_part(part, secrets) for part in content.parts]
    return content.model_copy(update={"parts": parts})


def _mask_part(part: types.Part, secrets: RunSecrets) -> types.Part:
    update: dict[str, Any] = {}
    if part.text and (text := secrets.mask(part.text)) != part.text:
        update["text"] = text
        if part.thought:
            update["thought_signature"] = None
    if (signed := read_signature(part.thought_signature)) and secrets.mask(signed) != signed:
        update["thought_signature"] = None
    if call := part.function_call:
        paths = secrets.paths.get(call.id or "", set())
        original = (call.args or {}).get("originalFunctionCall")  # ADK: the call that a confirmation is about
        if isinstance(original, dict):
            confirmed = secrets.paths.get(str(original.get("id")), set())
            paths = paths | {("originalFunctionCall", "args", *path) for path in confirmed}
        update["function_call"] = call.model_copy(update={"args": secrets.mask(call.args, paths)})
    if answer := part.function_response:
        response = secrets.mask(answer.response, secrets.paths.get(answer.id or "", set()))
        update["function_response"] = answer.model_copy(update={"response": response})
    if code := part.executable_code:
        update["executable_code"] = code.model_copy(update={"code": secrets.mask(code.code)})
    if result := part.code_execution_result:
        update["code_execution_result"] = result.model_copy(update={"output": secrets.mask(result.output)})
    return part.model_copy(update=update) if update else part


def fold_text(text: str) -> str:
    """Return a text for comparison without case and compatible forms; SQLite's `lower()` changes ASCII only."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def to_folded_column(content: str) -> str | None:
    """Return `fold_text` for the column `search_text`; None for ASCII, where the database's `lower()` will do."""
    return None if content.isascii() else fold_text(content)


def has_word(table: sa.Table, word: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a row of `messages` or `memories` contains a word, also within a longer word."""
    text = sa.func.coalesce(table.c.search_text, sa.func.lower(table.c.content))
    return text.contains(fold_text(word), autoescape=True)


def list_blob_digests(event: Event) -> set[str]:
    """Return the SHA-256 digests of the files of a stored event that are in `blobs`."""
    return {data.removeprefix(BLOB_PREFIX).decode() for data in _iterate_bytes(event) if data.startswith(BLOB_PREFIX)}


def restore_blobs(event: Event, blobs: Mapping[str, bytes]) -> Event:
    """Return a copy of a stored event with its files; raise `KeyError` if the bytes of one are missing."""

    def get_blob(data: bytes) -> bytes:
        if not data.startswith(BLOB_PREFIX):
            return data
        return blobs[data.removeprefix(BLOB_PREFIX).decode()]

    return _replace_bytes(event, get_blob)


def parse_event(event: str | None, id_: int) -> Event | None:
    """Return the ADK event in the column `event`, without its files from `blobs`; None for NULL.

    Raises:
        UnreadableRowError: the text is no event; the error names the row of `messages` with this id.
    """
    if event is None:
        return None
    with name_row("messages", id_):
        return Event.model_validate_json(event)


def measure_event(event: Event) -> tuple[str, int]:
    """Return an event's text for a token counter, and the estimated tokens of its files and frame.

    Raises:
        ValueError: a call or response has bytes that are not UTF-8.
    """
    words = [text for part in _get_parts(event) if (text := part_text(part))]
    tokens = 4  # the frame of a message
    for part in _get_parts(event):
        if call := part.function_call:
            words.append(f"{call.name} {_to_json(call.args or {})}")
        if response := part.function_response:
            words.append(f"{response.name} {_to_json(response.response or {})}")
            tokens += sum(_estimate_media_tokens(item.inline_data) for item in response.parts or ())
        if part.file_data:
            tokens += _IMAGE_TOKENS
        tokens += _estimate_media_tokens(part.inline_data)
    if compaction := event.actions.compaction:
        words += [part.text for part in compaction.compacted_content.parts or () if part.text]
    return "\n".join(words), tokens


def count_media_bytes(event: Event) -> int:
    """Return the bytes of all files in an event; of a file in `blobs` that is not restored, those of its reference."""
    return sum(map(len, _iterate_bytes(event)))


def _estimate_media_tokens(media: types.Blob | types.FunctionResponseBlob | None) -> int:
    if media is None or not media.data:
        return 0
    if (media.mime_type or "").startswith("text/"):
        return len(media.data) // 4
    if (media.mime_type or "").startswith("image/"):
        return _IMAGE_TOKENS
    return _IMAGE_TOKENS + len(media.data) // 500  # Gemini: a second of sound is 32 tokens, of MP3 16 kB


def _get_parts(event: Event) -> Sequence[types.Part]:
    return (event.content and event.content.parts) or ()


def _get_text(event: Event) -> str:
    pieces = [text for part in _get_parts(event) if not part.thought and (text := part_text(part))]
    pieces += [_to_json(response.response or {}) for response in event.get_function_responses()]
    return "\n".join(pieces)


def _list_tool_calls(event: Event) -> list[dict[str, str]]:
    calls = event.get_function_calls()
    answers = event.get_function_responses()
    ids = set[str]()
    answer_ids = set[str]()
    return [
        *(
            {"id": unique_id(c.id, c.name or "tool", ids), "name": c.name or "", "input": _to_json(c.args or {})}
            for c in calls
        ),
        *(
            {
                "id": unique_id(a.id, a.name or "tool", answer_ids),
                "name": a.name or "",
                "output": _to_json(a.response or {}),
            }
            for a in answers
        ),
    ]


def _get_long_running_calls(event: Event) -> dict[str, bool] | None:
    """Return the ids of unanswered calls, each with False; empty for a compaction."""
    if event.actions.compaction is not None:
        return {}
    return dict.fromkeys(sorted(event.long_running_tool_ids or ()), False) or None


def _iterate_bytes(event: Event) -> Iterator[bytes]:
    for part in _get_parts(event):
        media: list[types.Blob | types.FunctionResponseBlob | None] = [part.inline_data]
        if part.function_response:
            media += [item.inline_data for item in part.function_response.parts or ()]
        yield from (item.data for item in media if item is not None and item.data)


def _replace_bytes(event: Event, replace: Callable[[bytes], bytes]) -> Event:
    if event.content is None or next(_iterate_bytes(event), None) is None:
        return event
    parts = [_replace_part_bytes(part, replace) for part in _get_parts(event)]
    return event.model_copy(update={"content": event.content.model_copy(update={"parts": parts})})


def _replace_part_bytes(part: types.Part, replace: Callable[[bytes], bytes]) -> types.Part:
    update: dict[str, Any] = {}
    if part.inline_data and part.inline_data.data:
        update["inline_data"] = part.inline_data.model_copy(update={"data": replace(part.inline_data.data)})
    if part.function_response and part.function_response.parts:
        items = []
        for item in part.function_response.parts:
            if (media := item.inline_data) and media.data:
                media = media.model_copy(update={"data": replace(media.data)})
                items.append(item.model_copy(update={"inline_data": media}))
            else:
                items.append(item)
        update["function_response"] = part.function_response.model_copy(update={"parts": items})
    return part.model_copy(update=update) if update else part


def _to_json(value: Any) -> str:
    return json.dumps(to_json_value(value), ensure_ascii=False)


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(item) for item in value]
    return value


def is_in_session(session: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a row of `messages` belongs to a session.

    It is for queries with the order `NEWEST_FIRST` or `OLDEST_FIRST`. Two comparisons replace `=`, after which
    PostgreSQL would ignore the session in the order, and, for few long sessions, read the messages of all sessions.
    """
    return (messages.c.session >= session) & (messages.c.session <= session)
