"""Files that models and tools return: saved as artifacts, which the reply shows."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence

import aiohttp
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.plugins import BasePlugin
from google.genai import types

from core.models.finish_reasons import EMPTY_FILE_NOTE, FILE_TOO_LARGE_NOTE
from core.models.media import (
    UNKNOWN_TYPE,
    add_wav_header,
    fit_file_name,
    format_size,
    guess_mime_type,
    guess_suffix,
    identify_file,
    is_text_type,
)
from core.models.provider import Media
from core.models.selection import AgentRunConfig
from core.observability.secret_redaction import format_error
from core.sessions.artifacts import FROM_EVENT_KEY
from core.tools.public_web import Address, UrlRefusedError, is_public, open_url, read_body

log = logging.getLogger(__name__)

#: Maximum size of a file that a model or a tool returns. The database stores it twice, as an artifact and in the event,
#: and no vendor accepts more in a request.
MAX_FILE_BYTES = 20 * 2**20

#: The most addresses of an event that are fetched, and the most seconds of each fetch.
_MAX_FETCHES = 9
_FETCH_SECONDS = 20.0

_MAX_NAME_CHARACTERS = 80

#: Main MIME types that become the name of a file without one (`image-1.png`); other files are named `file-1.pdf`.
_NAMED_TYPES = frozenset({"image", "audio", "video"})

_Blob = types.Blob | types.FunctionResponseBlob


class MediaPlugin(BasePlugin):
    """ADK plugin that saves the files in an event as artifacts, before the event is stored.

    A file keeps its own name if no other file of the run has it. Otherwise its type and position in the run give the
    name, such as `image-2.png`. So an attempt after a crash saves the next version of the same artifact, and the reply
    shows the newest version of each name.

    Args:
        is_allowed: returns whether a file may be fetched from a host with this IP address.
    """

    def __init__(self, is_allowed: Callable[[Address], bool] = is_public) -> None:
        super().__init__(name="parley_media")
        self._is_allowed = is_allowed

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        """Save the files of an agent's event as artifacts, and list their versions in it.

        The first `_MAX_FETCHES` files at http(s) addresses are fetched before that; an address that cannot be fetched
        stays. A note for the user replaces each file that is empty or has more than `MAX_FILE_BYTES`. In the event,
        saved files get their names and the types of their bytes, and raw sound gets a WAV header.
        """
        service = invocation_context.artifact_service
        if event.partial or event.author == "user" or event.content is None or service is None:
            return
        await self._fetch_files(event)
        _replace_unusable_files(event)
        for blob in _list_blobs(event):
            sound = add_wav_header(Media(blob.mime_type or UNKNOWN_TYPE, blob.data))
            blob.mime_type = await asyncio.to_thread(identify_file, sound.data or b"", sound.mime_type)
            blob.data = sound.data
            name = _choose_name(blob, invocation_context)
            session = invocation_context.session
            version = await service.save_artifact(
                app_name=invocation_context.app_name,
                user_id=invocation_context.user_id,
                session_id=session.id,
                filename=name,
                artifact=types.Part(inline_data=types.Blob(mime_type=blob.mime_type, data=blob.data)),
                custom_metadata={FROM_EVENT_KEY: True},
            )
            blob.display_name = name
            event.actions.artifact_delta[name] = version

    async def _fetch_files(self, event: Event) -> None:
        """Replace up to `_MAX_FETCHES` http(s) addresses by the bytes of their files, fetched at the same time."""
        parts = [part for part in _list_addresses(event) if _get_uri(part).startswith(("http://", "https://"))]
        async with asyncio.TaskGroup() as fetches:
            for part in parts[:_MAX_FETCHES]:
                fetches.create_task(self._fetch(part))

    async def _fetch(self, part: types.Part | types.FunctionResponsePart) -> None:
        """Replace an address by the bytes of its file; if that fails, the address stays, and a warning is logged."""
        file = part.file_data
        assert file is not None, "the part has an address"
        try:
            async with (
                asyncio.timeout(_FETCH_SECONDS),
                open_url(file.file_uri or "", self._is_allowed) as (_, response),
            ):
                data = await read_body(response, MAX_FILE_BYTES + 1) if response.status == 200 else b""
                kind = await asyncio.to_thread(_identify, data, file.mime_type or "", response.content_type)
        except (UrlRefusedError, TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            log.warning("a file of an agent cannot be fetched, so its address is shown: %s", format_error(error))
            return
        if not data or not kind:
            log.warning("a file of an agent is not at its address, so the address is shown")
            return
        part.file_data = None
        if isinstance(part, types.Part):
            part.inline_data = types.Blob(data=data, mime_type=kind, display_name=file.display_name)
        else:
            part.inline_data = types.FunctionResponseBlob(data=data, mime_type=kind, display_name=file.display_name)


def _list_addresses(event: Event) -> Iterator[types.Part | types.FunctionResponsePart]:
    for part in (event.content and event.content.parts) or ():
        if part.file_data is not None and not part.thought:
            yield part
        for item in (part.function_response and part.function_response.parts) or ():
            if item.file_data is not None:
                yield item


def _get_uri(part: types.Part | types.FunctionResponsePart) -> str:
    return (part.file_data and part.file_data.file_uri) or ""


def _identify(data: bytes, declared: str, served: str) -> str:
    """Return the MIME type of a fetched file by its bytes; empty if it is another file than the declared one.

    A server may answer with a web page about the file instead of the file.
    """
    known = declared if guess_mime_type("", declared) else served
    expected = guess_mime_type("", known)
    kind = identify_file(data, known)
    if expected is None or kind == known:
        is_page = served == "text/html" != expected and is_text_type(kind)
        return "" if is_page else kind
    main_type = kind.partition("/")[0]
    return kind if main_type in _NAMED_TYPES and main_type == expected.partition("/")[0] else ""


def _list_blobs(event: Event) -> Iterator[_Blob]:
    for part in (event.content and event.content.parts) or ():
        if part.thought:
            continue
        if part.inline_data is not None and part.inline_data.data:
            yield part.inline_data
        for item in (part.function_response and part.function_response.parts) or ():
            if item.inline_data is not None and item.inline_data.data:
                yield item.inline_data


def _replace_unusable_files(event: Event) -> None:
    assert event.content is not None
    for part in event.content.parts or ():
        if note := _find_fault(part.inline_data):
            part.inline_data = None
            part.thought_signature = None
            part.text = f"\n\n{note}\n\n"
        if (response := part.function_response) is not None and response.parts:
            faults = [(item, _find_fault(item.inline_data)) for item in response.parts]
            if notes := sorted({note for _, note in faults if note}):
                response.parts = [item for item, note in faults if not note]
                response.response = {**(response.response or {}), "left_out": " ".join(notes)}


def _find_fault(blob: _Blob | None) -> str:
    """Return the note for the user on an empty or too large file, and log its size."""
    if blob is None or 0 < len(blob.data or b"") <= MAX_FILE_BYTES:
        return ""
    log.warning("a file of an agent is left out: it has %s", format_size(len(blob.data or b"")))
    return FILE_TOO_LARGE_NOTE if blob.data else EMPTY_FILE_NOTE


def _choose_name(blob: _Blob, context: InvocationContext) -> str:
    """Return a file name that is new in the run, and add it to the run's `file_names`."""
    run = context.run_config
    names = run.file_names if isinstance(run, AgentRunConfig) else []
    names.extend(name for name in _list_names(context) if name not in names)
    kind = blob.mime_type or UNKNOWN_TYPE
    main_type = kind.partition("/")[0]
    stem = main_type if main_type in _NAMED_TYPES else "file"
    number = sum(name.startswith(f"{stem}-") for name in names) + 1
    own = re.sub(r"[^\w.() -]", "_", (blob.display_name or "").replace("\\", "/").rpartition("/")[2]).strip(". ")
    own = fit_file_name(own[-_MAX_NAME_CHARACTERS:], kind)
    name = own if own and own not in names else f"{stem}-{number}{guess_suffix(kind)}"
    names.append(name)
    return name


def _list_names(context: InvocationContext) -> list[str]:
    events: Sequence[Event] = context.session.events
    return [
        blob.display_name
        for event in events
        if event.invocation_id == context.invocation_id and event.author != "user"
        for blob in _list_blobs(event)
        if blob.display_name
    ]
