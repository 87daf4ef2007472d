"""What the site of the docs needs besides its pages: see `mkdocs.yml`.

Where the repository itself is read, a page may link to a file beside the docs, and must not show what only the site
understands. So the first are taken along, and the second stands in comments.
"""

import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent

#: A link that leads out of the docs.
_OUTSIDE = re.compile(r"\]\(\.\./\.\./(?P<path>[^)#]+)\)")

#: A block of code that is in no item of a list.
_CODE = re.compile(r"(^```.*?^```$)", re.M | re.S)

#: What belongs to an item of a numbered list is set in by three blanks. Python's Markdown wants four, and an empty line
#: before the next item, if there was one within this one.
_IN_ITEM = re.compile(r"^ {3}(?=\S)", re.M)
_NEXT_ITEM = re.compile(r"^( {4}.+\n)(?=\d+\. )", re.M)

#: The place of what docstrings say.
_DOCSTRINGS = re.compile(r"^<!-- (?P<place>::: .+?) -->$", re.M | re.S)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Take along what the pages link to beside the docs."""
    texts = [file.content_string for file in files.documentation_pages()]
    for path in sorted({found["path"] for text in texts for found in _OUTSIDE.finditer(text)}):
        files.append(File.generated(config, _along(path), content=(ROOT / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the Markdown of a page for the site."""
    del config, files
    up = "../" * (len(PurePosixPath(page.file.src_uri).parts) - 1)
    linked = _OUTSIDE.sub(lambda found: f"]({up}{_along(found['path'])})", markdown)
    told = "".join(part if part.startswith("```") else _with_items(part) for part in _CODE.split(linked))
    return _DOCSTRINGS.sub(r"\g<place>", told)


def _with_items(text: str) -> str:
    """Indent numbered lists as Python's Markdown expects."""
    return _NEXT_ITEM.sub(r"\1\n", _IN_ITEM.sub("    ", text))


def _along(path: str) -> str:
    """Return the page of the site for a file of the repository; one whose name begins with a dot would be left out."""
    return f"beside/{path.lstrip('.')}"
