import pytest

from channels.markdown.emoji_names import to_character, to_short_name


@pytest.mark.parametrize(
    ("emoji", "name"),
    [
        ("🎉", "tada"),
        ("👍", "+1"),
        ("👍🏽", "+1::skin-tone-4"),
        ("❤️", "heart"),
        ("❤", "heart"),
        ("🇰🇷", "kr"),
        ("tada", "tada"),
        (":tada:", "tada"),
        ("party_parrot", "party_parrot"),
    ],
)
def test_an_emoji_has_slacks_name(emoji: str, name: str) -> None:
    assert to_short_name(emoji) == name


@pytest.mark.parametrize(
    ("name", "emoji"), [("tada", "🎉"), (":thumbsup:", "👍"), ("🎉", "🎉"), ("parrot:1234567890", "parrot:1234567890")]
)
def test_a_name_has_a_character(name: str, emoji: str) -> None:
    assert to_character(name) == emoji
