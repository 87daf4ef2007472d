"""Script that converts a web page to text, in a process of its own.

A page can make this take minutes, and neither a codec nor the converter can be interrupted in a thread. `read_page`
runs this file as a script and kills it at the time limit. The script limits its own memory, reads the body from its
standard input and writes UTF-8.
"""

import re
import sys
from contextlib import suppress
from importlib import import_module

#: Limit of the script's memory (address space). Measured with pages of 2 MB: 25 MB before the page, 102 MB for an
#: article, 178 MB for a table of 65,000 rows, 224 MB for 200,000 open links, 1,284 MB for 333,000 open `<pre>`.
MAX_MEMORY_BYTES = 128 * 2**20

#: Encodings that pages use (encoding.spec.whatwg.org). Python has others that take quadratic time (punycode) or are no
#: encodings of text (zip).
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(?:-?[lb]e)?|(?:us-)?ascii|latin-?1|iso-?8859-\d{1,2}|windows-125\d|cp125\d"
    r"|euc-(?:jp|kr|tw|cn)|shift-jis|sjis|gb18030|big5(?:-hkscs)?"
)

#: GB 18030 is a superset of both.
_SUPERSETS = {"gb2312": "gb18030", "gbk": "gb18030"}


def decode(body: bytes, charset: str) -> str:
    """Return the text of a page; UTF-8 if the charset is none of the encodings of web pages."""
    name = charset.strip().lower().replace("_", "-")
    name = _SUPERSETS.get(name, name)
    try:
        return body.decode(name if _CHARSETS.fullmatch(name) else "utf-8", errors="replace")
    except LookupError:
        return body.decode("utf-8", errors="replace")


def to_markdown(page: str) -> str:
    """Return an HTML page as Markdown; raise `ImportError` without the extra `web`."""
    text: str | None = import_module("html_to_markdown").convert(page).content
    return (text or "").strip()


def limit_memory() -> None:
    """Limit the address space of this process, and write no core file when it is exceeded.

    Windows has no such limits, and macOS does not enforce that of the address space.
    """
    with suppress(ImportError, ValueError, OSError):
        resource = import_module("resource")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def main(charset: str, kind: str, max_characters: str) -> None:
    """Write the text of the page on standard input to standard output, as UTF-8.

    `kind` is `html` to convert the page to Markdown. At most one character more than `max_characters` is written, by
    which the caller detects a longer text.
    """
    limit_memory()
    text = decode(sys.stdin.buffer.read(), charset)
    if kind == "html":
        text = to_markdown(text)
    sys.stdout.buffer.write(text[: int(max_characters) + 1].encode("utf-8", errors="replace"))


if __name__ == "__main__":
    main(*sys.argv[1:])
