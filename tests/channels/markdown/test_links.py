import pytest

from channels.markdown.links import Link, show_target


def create_link(label: str, target: str) -> Link:
    return Link(label, target, f"[{label}]({target})")


@pytest.mark.parametrize(
    ("label", "target"),
    [
        ("bank.example", "https://evil.example"),
        ("https://bank.example", "https://evil.example/https://bank.example"),
        ("https://bank.example/safe", "https://bank.example/evil"),
        ("bank.example", "https://bank.example@evil.example"),
        ("bank.example", "https://bank.example.evil.example"),
        ("go to **bank.example** now", "https://evil.example"),
        ("b\u200bank.exam\u200dple", "https://evil.example"),
        ("".join(chr(ord(letter) + 0xFEE0) for letter in "bank.example"), "https://evil.example"),
        ("bank。example", "https://evil.example"),
        ("BANK.EXAMPLE", "javascript:alert(1)"),
        ("www.bank.example", "http://www.evil.example"),
        ("bank&#46;example", "https://evil.example"),
        ("bank&period;example", "https://evil.example"),
        ("bank<!-- -->.example", "https://evil.example"),
        ("<bank.example>", "https://evil.example"),
        ("bank\ufe0f.example", "https://evil.example"),
        ("bank\u3164.example", "https://evil.example"),
        ("\u0431\u0430\u043d\u043a.\u0440\u0444", "https://evil.example"),
        ("bank.examplehttps://evil.example", "https://evil.example"),
    ],
)
def test_a_label_that_looks_like_another_address_is_disguised(label: str, target: str) -> None:
    assert create_link(label, target).is_disguised


@pytest.mark.parametrize(
    ("label", "target"),
    [
        ("the bank", "https://bank.example"),
        ("bank.example", "https://www.bank.example/accounts?x=1"),
        ("https://bank.example/", "https://bank.example"),
        ("Bank.Example/Accounts", "https://bank.example/accounts/1"),
        ("version 1.2.3", "https://x.y"),
        ("e.g. this", "https://x.y"),
        ("", "https://x.y"),
        ("https://bank.example/a_b*c", "https://bank.example/a_b*c"),
    ],
)
def test_other_labels_are_not_disguised(label: str, target: str) -> None:
    assert not create_link(label, target).is_disguised


def test_a_target_can_be_shown_beside_the_label() -> None:
    assert show_target(create_link("label", "https://x.y")) == ("", " (https://x.y)")
    assert show_target(create_link("", "https://x.y")) == ("", "https://x.y")
