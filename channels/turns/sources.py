"""Sources of an answer: a line of numbered links to web pages below it."""

import re
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from core.models.grounding import Source

#: The most links in the line.
MAX_LINKS = 8

#: Gemini: links of a search lead through this address, and their titles are the domains of the pages.
_GOOGLE_HOST, _GOOGLE_PATH = "vertexaisearch.cloud.google.com", "/grounding-api-redirect/"

_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,62})\.){1,8}[a-z]{2,24}")
_HOST = re.compile(r"[A-Za-z0-9.-]+")


def add_sources(text: str, sources: Sequence[Source], say: MessageCatalog) -> str:
    """Return an answer with a line of links to its sources, at most `MAX_LINKS`, and the number of further sources.

    Each link shows its number and host. A title is left out: it could contain markup, or name another host.
    """
    if not text.strip() or not sources:
        return text
    links = [_format_link(number, source) for number, source in enumerate(sources[:MAX_LINKS], 1)]
    if (hidden_count := len(sources) - MAX_LINKS) > 0:
        links.append(f"+{hidden_count}")
    return f"{text.rstrip()}\n\n{say(words.SOURCES, links=' · '.join(links))}"


def _format_link(number: int, source: Source) -> str:
    """Return a Markdown link to a web page that shows a number and the page's host.

    Gemini's links lead through a redirect of Google: their page's domain is shown after the link.
    """
    parts = urlsplit(source.url)
    host = _encode_host(parts.hostname or "")
    target = quote(source.url, safe="%:/?#@!$&'*+,;=~-._[]")
    domain = source.title.strip().lower()
    if host == _GOOGLE_HOST and parts.path.startswith(_GOOGLE_PATH) and _DOMAIN.fullmatch(domain):
        return f"[{number}]({target}) `{domain}` (Google)"
    return f"[{number} {host}]({target})" if host else f"[{number}]({target})"


def _encode_host(host: str) -> str:
    """Return a host name in ASCII (IDNA), in which no letter can imitate another one; empty for an invalid name."""
    try:
        encoded = host.encode("idna").decode()
    except UnicodeError:
        return ""
    return encoded if _HOST.fullmatch(encoded) else ""
