"""What a link of Markdown is, and whether it says one address and leads to another."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

_LABEL = r"!?\[(?P<label>(?:[^\[\]\\]|\\.|\[[^\[\]]{0,200}+\](?:\([^()\s]{0,2000}+\))?+){0,500}+)"


def _balanced(depth: int) -> str:
    """What has no white space in it, and parentheses in pairs, within one another to this depth."""
    plain = r"(?:[^\s()\\]|\\\S)*+"
    return rf"{plain}(?:\({_balanced(depth - 1)}\){plain})*+" if depth else plain


_TARGET = rf"(?P<target><(?:[^<>\n\\]|\\[^\n])*+>|{_balanced(3)})"
_TARGET_BEGUN = r"(?:<(?:[^<>\n\\]|\\[^\n])*+(?:>|\\?)|(?:[^\s\\]|\\\S|\\\Z)*+)"

_QUOTED = [r"\"(?:[^\"\\\n]|\\.){0,300}+", r"'(?:[^'\\\n]|\\.){0,300}+", r"\((?:[^()\\\n]|\\.){0,300}+"]
_TITLE = rf"(?:\s++(?:{_QUOTED[0]}\"|{_QUOTED[1]}'|{_QUOTED[2]}\)))?+"
_TITLE_BEGUN = rf"(?:\s++(?:{_QUOTED[0]}[\"\\]?+|{_QUOTED[1]}['\\]?+|{_QUOTED[2]}[)\\]?+)?+)?+"

#: A link or an image: its groups are `label` and `target`.
LINK = rf"{_LABEL}\]\(\s*+{_TARGET}{_TITLE}\s*+\)"

#: At the end of a text that still grows: what may become one.
LINK_BEGUN = re.compile(rf"{_LABEL}(?:\](?:\(\s*+{_TARGET_BEGUN}{_TITLE_BEGUN}\s*+)?)?\Z", re.DOTALL)

#: What a reader takes for an address: a scheme, or names with dots between them. The last branch matches names that
#: are no address, so that each character is read a fixed number of times.
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

#: Letters that are not to be seen, beside what Unicode calls formatting and marks upon others.
_FILLERS = "\u115f\u1160\u3164"


@dataclass(frozen=True, slots=True)
class Link:
    """A link or an image of Markdown.

    Attributes:
        label: what is to be read, in Markdown.
        target: where it leads.
        source: all of it, as it was written.
    """

    label: str
    target: str
    source: str
    is_image: bool

    @property
    def is_disguised(self) -> bool:
        """Whether the label looks like an address, and like another one than the target."""
        target = _bare(self.target)
        if _bare(self.label) == target:
            return False
        readings = (_plain(self.label), _plain(_TAG.sub("", self.label)))  # a platform shows tags, or leaves them out
        return any(not _leads(target, _bare(address)) for text in readings for address in _addresses(text))


def openly(link: Link) -> tuple[str, str]:
    """What stands before and behind the label when the address is to be seen."""
    return "", f" ({link.target})" if link.label.strip() else link.target


def _plain(label: str) -> str:
    """What a reader sees of the label: without marks, invisible characters and lookalike forms of letters."""
    text = unicodedata.normalize("NFKC", unescape(_MARKUP.sub("", label))).replace("\u3002", ".")
    return "".join(
        character
        for character in text
        if unicodedata.category(character) not in ("Cf", "Mn") and character not in _FILLERS
    )


def _addresses(text: str) -> Iterator[str]:
    for found in _ADDRESS.finditer(text):
        if found["word"] and (scheme := _SCHEME_END.search(found["word"])):
            yield scheme["scheme"] + found["rest"]
        elif found["word"] or found["host"]:
            yield found[0]


def _bare(address: str) -> str:
    return _SCHEME.sub("", unicodedata.normalize("NFKC", address)).casefold().rstrip("/.,;:!?)")


def _leads(target: str, said: str) -> bool:
    """Whether who reads `said` expects to get to `target`, or further up the same path."""
    return target == said or (target.startswith(said) and target[len(said)] in "/?#")
