"""Links of Markdown, and labels that hide the target."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from urllib.parse import quote

_LABEL = r"!?\[(?P<label>(?:[^\[\]\\]|\\.|\[[^\[\]]{0,200}+\](?:\([^()\s]{0,2000}+\))?+){0,500}+)"


def _balanced_pattern(depth: int) -> str:
    """Return a regular expression for text with balanced parentheses, no white space."""
    plain = r"(?:[^\s()\\]|\\\S)*+"
    return rf"{plain}(?:\({_balanced_pattern(depth - 1)}\){plain})*+" if depth else plain


_TARGET = rf"(?P<target><(?:[^<>\n\\]|\\[^\n])*+>|{_balanced_pattern(3)})"
_UNFINISHED_TARGET = r"(?:<(?:[^<>\n\\]|\\[^\n])*+(?:>|\\?)|(?:[^\s\\]|\\\S|\\\Z)*+)"

_QUOTED = [r"\"(?:[^\"\\\n]|\\.){0,300}+", r"'(?:[^'\\\n]|\\.){0,300}+", r"\((?:[^()\\\n]|\\.){0,300}+"]
_TITLE = rf"(?:\s++(?:{_QUOTED[0]}\"|{_QUOTED[1]}'|{_QUOTED[2]}\)))?+"
_UNFINISHED_TITLE = rf"(?:\s++(?:{_QUOTED[0]}[\"\\]?+|{_QUOTED[1]}['\\]?+|{_QUOTED[2]}[)\\]?+)?+)?+"

#: Pattern of a link or an image, with the groups `label` and `target`.
LINK = rf"{_LABEL}\]\(\s*+{_TARGET}{_TITLE}\s*+\)"

#: A link or an image that is incomplete at the end of a growing text.
UNFINISHED_LINK = re.compile(rf"{_LABEL}(?:\](?:\(\s*+{_UNFINISHED_TARGET}{_UNFINISHED_TITLE}\s*+)?)?\Z", re.DOTALL)

#: Text that a reader takes for an address: a scheme, or names with dots between them. The last branch matches names
#: that are no address, so that each character is matched a fixed number of times.
_ADDRESS = re.compile(
    r"""
      (?<![\w.+-])(?P<word>[\w.+-]++)(?P<rest>://[^\s<>]+)
    | (?P<host>(?:[^\W_][\w-]*+\.)+[^\W\d_][\w-]++(?::\d+)?(?:[/?\#][^\s<>]*)?)
    | [^\W_][\w-]*+(?:\.[^\W_][\w-]*+)*+
    """,
    re.VERBOSE,
)
_SCHEME_END = re.compile(r"(?<![a-z0-9+.-])[0-9+.-]*+(?P<scheme>[a-z][a-z0-9+.-]*+)\Z", re.IGNORECASE)
_SCHEME = re.compile(r"^(?:https?://)?(?:www\.)?", re.IGNORECASE)
_MARKUP = re.compile(r"[*_~`\\]")
_TAG = re.compile(r"<[^<>]*>")

#: Invisible letters outside of the Unicode categories for formatting and combining marks.
_INVISIBLE_LETTERS = "\u115f\u1160\u3164"


@dataclass(frozen=True, slots=True)
class Link:
    """Link or image of Markdown.

    Attributes:
        label: the Markdown between the brackets.
        source: the Markdown of the whole link.
    """

    label: str
    target: str
    source: str

    @property
    def is_disguised(self) -> bool:
        """True if the label shows a URL or host other than the target or its parents."""
        target = _normalize_address(self.target)
        if _normalize_address(self.label) == target:
            return False
        readings = (self.label, _TAG.sub("", self.label))  # a platform shows tags or hides them
        addresses = (address for text in readings for address in _find_addresses(_visible_label(text)))
        return any(not _is_prefix_of_target(target, _normalize_address(address)) for address in addresses)


def show_target(link: Link) -> tuple[str, str]:
    """Return the texts to put before and after a link's label to show its URL as text."""
    return "", f" ({link.target})" if link.label.strip() else link.target


def quote_target(target: str) -> str:
    """Return a URL for the parentheses of a link, without angle brackets around it."""
    return re.sub(r"[\s()<>|\\]", lambda found: quote(found[0], safe=""), target)


def _visible_label(label: str) -> str:
    """Return a link's label as a reader sees it: without markup and invisible characters, in NFKC."""
    text = unicodedata.normalize("NFKC", unescape(_MARKUP.sub("", label))).replace("\u3002", ".")
    return "".join(
        character
        for character in text
        if unicodedata.category(character) not in ("Cf", "Mn") and character not in _INVISIBLE_LETTERS
    )


def _find_addresses(text: str) -> Iterator[str]:
    """Yield each part of a text that a reader takes for a URL or a host name."""
    for found in _ADDRESS.finditer(text):
        if found["word"] and (scheme := _SCHEME_END.search(found["word"])):
            yield scheme["scheme"] + found["rest"]
        elif found["word"] or found["host"]:
            yield found[0]


def _normalize_address(address: str) -> str:
    """Return an address without `https://`, `www.`, case and final punctuation."""
    return _SCHEME.sub("", unicodedata.normalize("NFKC", address)).casefold().rstrip("/.,;:!?)")


def _is_prefix_of_target(target: str, address: str) -> bool:
    """Return whether an address in a label is the link's target or its parent path."""
    return target == address or (target.startswith(address) and target[len(address)] in "/?#")
