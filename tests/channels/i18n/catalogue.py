"""The catalogue of the bot's own words: what is in it, and how it is brought in step with the code.

`python -m tests.channels.i18n.catalogue` (`make words`) adds to each language what is new and takes away what is gone.
What it then names is to be translated in `channels/i18n/locales/*/LC_MESSAGES/parley.po`; after that, it is run once
more.
"""

import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from channels.i18n import messages as words
from core import errors
from core.agents.tool_progress import BUILTIN_PROGRESS_TEXTS

LOCALES = Path(words.__file__).with_name("locales")
FOREIGN = [language for language in words.LANGUAGES if language != words.ENGLISH.language]


#: What Babel would write of its own accord changes with each run.
_HEADER: dict[str, Any] = {
    "header_comment": "# What is translated: see channels/i18n/messages.py.",
    "creation_date": datetime(2026, 1, 1, tzinfo=UTC),
    "revision_date": datetime(2026, 1, 1, tzinfo=UTC),
    "msgid_bugs_address": "-",
    "last_translator": "-",
    "language_team": "-",
}


def sentences() -> Iterator[str]:
    """All that is said in English, once."""
    own = {name: said for name, said in vars(words).items() if name.isupper() and isinstance(said, str)}
    yield from (said for name, said in own.items() if not name.startswith("_") and said != words.PLACEHOLDER)
    yield from BUILTIN_PROGRESS_TEXTS.values()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    yield from dict.fromkeys(kind.public for kind in kinds if issubclass(kind, errors.ParleyError))


def file(language: str) -> Path:
    return LOCALES / language / "LC_MESSAGES" / "parley.po"


def read(language: str) -> Catalog:
    with file(language).open("rb") as source:
        return read_po(source, locale=language)


def compiled(catalog: Catalog) -> bytes:
    target = io.BytesIO()
    write_mo(target, catalog)
    return target.getvalue()


def untranslated(catalog: Catalog) -> list[str]:
    return [str(message.id) for message in catalog if message.id and (message.fuzzy or not message.string)]


def update(language: str) -> Catalog:
    """Bring the files of a language in step with the code."""
    found = {message.id: message.string for message in read(language)} if file(language).exists() else {}
    catalog = Catalog(language, project="parley", version="0", fuzzy=False, **_HEADER)
    for sentence in sentences():
        catalog.add(sentence, found.get(sentence, ""))
    file(language).parent.mkdir(parents=True, exist_ok=True)
    with file(language).open("wb") as target:
        write_po(target, catalog, width=120)
    file(language).with_suffix(".mo").write_bytes(compiled(catalog))
    return catalog


if __name__ == "__main__":
    missing = [f"{language}: {sentence}" for language in FOREIGN for sentence in untranslated(update(language))]
    sys.exit("\n".join(missing) or 0)
