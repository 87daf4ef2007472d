"""Links that say one address and lead to another."""

import re
import unicodedata
from dataclasses import dataclass

#: What a reader takes for an address: a scheme, or names with dots between them.
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*://[^\s<>]+|(?:[^\W_][\w-]*\.)+[a-z][a-z0-9-]+(?::\d+)?(?:[/?#][^\s<>]*)?", re.IGNORECASE
)
_SCHEME = re.compile(r"^(?:[a-z][a-z0-9+.-]*://)?(?:www\.)?", re.IGNORECASE)
_MARKUP = re.compile(r"[*_~`\\]")


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
        return any(not _leads(target, _bare(found[0])) for found in _ADDRESS.finditer(_plain(self.label)))


def openly(link: Link) -> tuple[str, str]:
    """What stands before and behind the label when the address is to be seen."""
    return "", f" ({link.target})" if link.label.strip() else link.target


def _plain(label: str) -> str:
    """What a reader sees of the label: without marks, invisible characters and lookalike forms of letters."""
    text = unicodedata.normalize("NFKC", _MARKUP.sub("", label)).replace("\u3002", ".")
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def _bare(address: str) -> str:
    return _SCHEME.sub("", unicodedata.normalize("NFKC", address)).casefold().rstrip("/.,;:!?)")


def _leads(target: str, said: str) -> bool:
    """Whether who reads `said` expects to get to `target`, or further up the same path."""
    return target == said or (target.startswith(said) and target[len(said)] in "/?#")
