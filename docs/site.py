"""Hooks of MkDocs for the site of the docs: see `mkdocs.yml`.

People also read the pages in the repository. So they link to files outside the docs, and have the site's syntax in
comments. The site gets copies of these files, and the syntax without the comments.
"""

import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent

#: Link to a file outside the docs.
_OUTSIDE = re.compile(r"\]\(\.\./\.\./(?P<path>[^)#]+)\)")

#: Code block outside list items.
_CODE = re.compile(r"(^```.*?^```$)", re.M | re.S)

#: Content of a numbered item, with an indent of three spaces. Python's Markdown requires four, and an empty line before
#: the next item if this one contains an empty line.
_IN_ITEM = re.compile(r"^ {3}(?=\S)", re.M)
_NEXT_ITEM = re.compile(r"^( {4}.+\n)(?=\d+\. )", re.M)

#: Placeholder of mkdocstrings for docstrings.
_DOCSTRINGS = re.compile(r"^<!-- (?P<place>::: .+?) -->$", re.M | re.S)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files outside the docs that pages link to."""
    texts = [file.content_string for file in files.documentation_pages()]
    for path in sorted({found["path"] for text in texts for found in _OUTSIDE.finditer(text)}):
        files.append(File.generated(config, _get_site_path(path), content=(ROOT / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the Markdown of a page for the site."""
    del config, files
    up = "../" * (len(PurePosixPath(page.file.src_uri).parts) - 1)
    linked = _OUTSIDE.sub(lambda found: f"]({up}{_get_site_path(found['path'])})", markdown)
    indented = "".join(part if part.startswith("```") else _indent_items(part) for part in _CODE.split(linked))
    return _DOCSTRINGS.sub(r"\g<place>", indented)


def _indent_items(text: str) -> str:
    """Indent numbered lists as Python's Markdown expects."""
    return _NEXT_ITEM.sub(r"\1\n", _IN_ITEM.sub("    ", text))


def _get_site_path(path: str) -> str:
    """Return the path of a repository file in the site.

    It has no leading dot, since MkDocs omits dot files.
    """
    return f"repository/{path.lstrip('.')}"
