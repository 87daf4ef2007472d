"""Translation catalogues of the bot's texts, updated from the code.

`python -m tests.channels.i18n.catalogue` (`make words`) adds new texts to each language and removes old ones.
Translate the texts that it prints in `channels/i18n/locales/*/LC_MESSAGES/parley.po`, and run it again.
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
from core.agents.loader import BUILTIN_PROGRESS_TEXTS

LOCALES = Path(words.__file__).with_name("locales")
FOREIGN = [language for language in words.LANGUAGES if language != words.ENGLISH.language]


#: Babel would write headers that change with each run.
_HEADER: dict[str, Any] = {
    "header_comment": "# What is translated: see channels/i18n/messages.py.",
    "creation_date": datetime(2026, 1, 1, tzinfo=UTC),
    "revision_date": datetime(2026, 1, 1, tzinfo=UTC),
    "msgid_bugs_address": "-",
    "last_translator": "-",
    "language_team": "-",
}


def list_sentences() -> Iterator[str]:
    """Yield each English text that the bot shows to users, for translation."""
    own = {name: text for name, text in vars(words).items() if name.isupper() and isinstance(text, str)}
    yield from (text for name, text in own.items() if not name.startswith("_") and text != words.PLACEHOLDER)
    yield from BUILTIN_PROGRESS_TEXTS.values()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    yield from dict.fromkeys(kind.public for kind in kinds if issubclass(kind, errors.ParleyError))


def get_path(language: str) -> Path:
    return LOCALES / language / "LC_MESSAGES" / "parley.po"


def read_catalog(language: str) -> Catalog:
    with get_path(language).open("rb") as source:
        return read_po(source, locale=language)


def compile_catalog(catalog: Catalog) -> bytes:
    target = io.BytesIO()
    write_mo(target, catalog)
    return target.getvalue()


def list_untranslated(catalog: Catalog) -> list[str]:
    return [str(message.id) for message in catalog if message.id and (message.fuzzy or not message.string)]


def update_catalog(language: str) -> Catalog:
    """Write a language's `.po` and `.mo` files from the texts in the code.

    Existing translations are reused. Returns the catalogue.
    """
    found = {message.id: message.string for message in read_catalog(language)} if get_path(language).exists() else {}
    catalog = Catalog(language, project="parley", version="0", fuzzy=False, **_HEADER)
    for sentence in list_sentences():
        catalog.add(sentence, found.get(sentence, ""))
    get_path(language).parent.mkdir(parents=True, exist_ok=True)
    with get_path(language).open("wb") as target:
        write_po(target, catalog, width=120)
    get_path(language).with_suffix(".mo").write_bytes(compile_catalog(catalog))
    return catalog


if __name__ == "__main__":
    missing = [
        f"{language}: {sentence}" for language in FOREIGN for sentence in list_untranslated(update_catalog(language))
    ]
    sys.exit("\n".join(missing) or 0)
