import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from channels.discord.text import DiscordMarkdown
from channels.markdown.inline_renderer import render_inline
from channels.slack.text import SlackMarkdown

_READER = MarkdownIt("commonmark").enable("strikethrough")

#: Words and what surrounds them: quotation marks, brackets, final signs.
_words = st.sampled_from(["重要", "サーバ", "서버", "API", "注意", "요약 하나"])
_signs = st.sampled_from(
    ["{}", "「{}」", "\uff08{}\uff09", "({})", "{}\uff1a", "{}。", "“{}”", "{}\uff08B\uff09", "{}\uff01\uff1f"]
)
_neighbours = st.sampled_from(["", "は", "这", "이것을", "。", " ", "見て、"])


def list_bold_letters(text: str) -> list[tuple[str, bool]]:
    """Return each letter of Markdown, and whether CommonMark makes it bold."""
    letters, is_bold = list[tuple[str, bool]](), False
    for token in _READER.parseInline(text)[0].children or ():
        is_bold = is_bold + token.nesting > 0 if token.tag == "strong" else is_bold
        letters += [(letter, is_bold) for letter in token.content if letter.isalnum()]
    return letters


@given(st.lists(st.tuples(_neighbours, _words, _signs), min_size=1, max_size=4), _neighbours, st.booleans())
def test_letters_are_bold_beside_punctuation_of_cjk(parts: list[tuple[str, str, str]], end: str, is_cut: bool) -> None:
    expected, text = list[tuple[str, bool]](), ""
    for number, (before, word, sign) in enumerate(parts):
        neighbour = before or ("和" if number else "")
        text += f"{neighbour}**{sign.format(word)}**"
        expected += [(letter, False) for letter in neighbour if letter.isalnum()]
        expected += [(letter, True) for letter in sign.format(word) if letter.isalnum()]
    text, expected = text + end, expected + [(letter, False) for letter in end if letter.isalnum()]
    rendered = render_inline(text, SlackMarkdown(), is_cut=is_cut).text
    assert list_bold_letters(rendered) == expected
    assert rendered.replace("*", "") == text.replace("*", "")
    assert render_inline(text, DiscordMarkdown(), is_cut=is_cut).text == text


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("**参照`a`**です", "**参照**`a`です"),
        ("これは**`code`です**", "これは`code`**です**"),
        ("**[要点](https://x.example/a)**です", "[**要点**](https://x.example/a)です"),
        ("**~~旧~~**新", "~~旧~~新"),
        ("これは**\uff01**です", "これは\uff01です"),
        ("***重要\uff1a***请", "***重要***\uff1a请"),
        ("**\uff08A\uff09\uff1a**请", "**\uff08A\uff09**\uff1a请"),
        ("~~旧\uff1a~~新", "~~旧~~\uff1a新"),
        ("_注意\uff1a_请", "_注意_\uff1a请"),
    ],
)
def test_punctuation_and_code_are_moved_out_of_emphasis(text: str, rendered: str) -> None:
    assert render_inline(text, SlackMarkdown()).text == rendered


@pytest.mark.parametrize(
    "text",
    [
        "5*\uff083+2\uff09*4",
        "`**重要\uff1a**请`",
        "\\**重要\uff1a**请",
        "**Note:**text",
        "数*\uff08b",
        "a ** 「b",
        "中**文**字",
        "**हिन्दी**में",
    ],
)
def test_text_without_refused_emphasis_is_unchanged(text: str) -> None:
    assert render_inline(text, SlackMarkdown()).text == text
