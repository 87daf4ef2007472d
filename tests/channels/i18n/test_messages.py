from string import Formatter

import pytest

from channels.i18n import messages as words
from channels.i18n.messages import ENGLISH
from core.errors import ParleyError
from core.models.finish_reasons import CUT_OFF_NOTE
from tests.channels.i18n import catalogue


@pytest.mark.parametrize("language", catalogue.FOREIGN)
def test_each_catalogue_has_exactly_the_texts_of_the_code(language: str) -> None:
    catalog = catalogue.read_catalog(language)
    assert [message.id for message in catalog if message.id] == list(catalogue.list_sentences()), "run `make words`"
    assert catalogue.list_untranslated(catalog) == []
    assert catalogue.get_path(language).with_suffix(".mo").read_bytes() == catalogue.compile_catalog(catalog), (
        "run `make words`"
    )


@pytest.mark.parametrize("language", catalogue.FOREIGN)
def test_translations_have_the_placeholders_of_their_texts(language: str) -> None:
    for message in catalogue.read_catalog(language):
        assert _find_placeholders(str(message.string)) == _find_placeholders(str(message.id)), message.id
        assert str(message.string).startswith("_") == str(message.id).startswith("_"), message.id


def test_each_text_occurs_once() -> None:
    sentences = list(catalogue.list_sentences())
    assert len(sentences) == len(set(sentences))


@pytest.mark.parametrize(
    ("locale", "language"),
    [
        ("ko", "ko"),
        ("ko-KR", "ko"),
        ("ko_KR.UTF-8", "ko"),
        ("en-GB", "en"),
        ("fr:ko_KR:en", "ko"),
        ("fr-FR", "en"),
        ("xx/../ko", "en"),
        ("", "en"),
    ],
)
def test_the_locale_of_the_platform_selects_the_language(locale: str, language: str) -> None:
    assert words.messages_for(locale).language == language


async def test_an_unknown_locale_gets_the_default_language() -> None:
    words.set_default("ko")  # within this test's own context
    assert [words.messages_for(locale).language for locale in ("", "fr", "en-US")] == ["ko", "ko", "en"]


def test_texts_are_formatted_in_the_language() -> None:
    korean = words.messages_for("ko")
    assert ENGLISH.format_error_with_id(ParleyError.public, "t1") == "⚠️ Something went wrong. (turn `t1`)"
    assert korean.format_error_with_id(ParleyError.public, "t1") == "⚠️ 문제가 발생했습니다. (턴 `t1`)"
    assert (ENGLISH.format_elapsed(15), korean.format_elapsed(15)) == (" (15 s)", " (15초)")
    assert (ENGLISH.format_tool("read_mail"), korean.format_tool("read_mail")) == (
        "_Using read mail…_",
        "_read mail 사용 중…_",
    )


def test_the_notice_of_an_interrupted_answer_is_translated() -> None:
    text = f"Half an\n\n{CUT_OFF_NOTE}"
    assert ENGLISH.translate_ending(text) == text
    assert words.messages_for("ko").translate_ending(text).startswith("Half an\n\n⚠️ 답변이")


def _find_placeholders(sentence: str) -> set[str | None]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}
