"""Web pages that answers are based on, in the form of Gemini's grounding metadata."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from google.adk.models.llm_response import LlmResponse
from google.genai import types

from core.models.messages import clean_text

#: Key of the custom metadata of a response: addresses of pages that the model read as a whole. ADK 2.13 has no field
#: for Gemini's `url_context_metadata`.
READ_URLS_KEY = "parley_read_urls"

#: Maximum length of an address. Longer ones are left out.
MAX_URL_CHARACTERS = 2_000

_MAX_TITLE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Source:
    """Web page that an answer is based on; `title` may be a domain, or empty."""

    url: str
    title: str = ""


def make_grounding(pages: Iterable[Source]) -> types.GroundingMetadata | None:
    chunks = [
        types.GroundingChunk(web=types.GroundingChunkWeb(uri=page.url, title=page.title or None)) for page in pages
    ]
    return types.GroundingMetadata(grounding_chunks=chunks) if chunks else None


def merge_grounding(
    first: types.GroundingMetadata | None, second: types.GroundingMetadata | None
) -> types.GroundingMetadata | None:
    """Return the second metadata with the first one's pages in front, each once; the arguments stay unchanged."""
    if first is None or second is None or first == second:
        return second or first
    earlier = first.grounding_chunks or []
    later = [chunk for chunk in second.grounding_chunks or () if chunk not in earlier]
    return second.model_copy(update={"grounding_chunks": [*earlier, *later]})


def find_sources(response: LlmResponse) -> list[Source]:
    """Return the pages with a web address in a response or event, in order, each once."""
    found = dict[str, Source]()
    for source in _list_pages(response):
        if is_web_address(source.url):
            found.setdefault(source.url, Source(source.url, clean_text(source.title)[:_MAX_TITLE_CHARACTERS]))
    return list(found.values())


def is_web_address(url: str) -> bool:
    """Return whether a text is an http(s) address that a Markdown link can contain, without a user name."""
    if len(url) > MAX_URL_CHARACTERS or not url.isprintable() or set(url) & set(' <>|\\"`'):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def _list_pages(response: LlmResponse) -> Iterator[Source]:
    grounding = response.grounding_metadata
    citations = response.citation_metadata
    for chunk in (grounding and grounding.grounding_chunks) or ():
        if (page := chunk.web or chunk.retrieved_context) is not None:
            yield Source(page.uri or "", page.title or "")
    for citation in (citations and citations.citations) or ():
        yield Source(citation.uri or "", citation.title or "")
    read_urls = (response.custom_metadata or {}).get(READ_URLS_KEY)
    for url in read_urls if isinstance(read_urls, list) else ():
        yield Source(str(url))
