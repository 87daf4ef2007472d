"""Prices of model calls: exact amounts, and an operator's own price file."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import SettingsError
from core.usage.meter import ModelCall
from core.usage.prices import UNITS_PER_DOLLAR, Prices, format_dollars, format_exact_dollars, to_amount

OURS = Prices()


def make_prices(tmp_path: Path, text: str) -> Prices:
    file = tmp_path / "prices.toml"
    file.write_text(text, encoding="utf-8")
    return Prices(file)


def test_a_call_costs_its_input_cache_output_and_thinking(
    tmp_path: Path,
) -> None:
    prices = make_prices(
        tmp_path, '"m" = { input = 2.5, cached = 0.000001, output = 10 }\n"n" = { input = 1, output = 2 }'
    )
    call = ModelCall("m", input=1_000_000, cached=400_000, output=100_000, thinking=50_000)
    assert prices.get_cost(call) == int(Decimal("1.5") * UNITS_PER_DOLLAR) + 400_000 + int(
        Decimal("1.5") * UNITS_PER_DOLLAR
    )
    assert prices.get_cost(ModelCall("n", input=10, cached=20)) == prices.get_cost(ModelCall("n", input=10))
    assert prices.get_cost(ModelCall("anybody/else", input=10)) is None


def test_cache_writes_have_their_own_price(tmp_path: Path) -> None:
    prices = make_prices(tmp_path, '"m" = { input = 4, cached = 0.4, cache_write = 5, output = 20 }')
    call = ModelCall("m", input=1_000, cached=600, cache_write=300, output=10)
    assert prices.get_cost(call) == (100 * 4 + 300 * 5 + 10 * 20) * 10**6 + 600 * 400_000
    assert OURS.get_cost(ModelCall("anthropic/claude-sonnet-4-6", input=100, cache_write=100)) == 100 * 3_750_000
    assert OURS.get_cost(ModelCall("gemini-2.5-pro", input=9, cache_write=9)) == OURS.get_cost(
        ModelCall("gemini-2.5-pro", 9)
    )


def test_the_longest_prefix_and_the_own_file_have_precedence(tmp_path: Path) -> None:
    prices = make_prices(
        tmp_path,
        'written = 2026-01-02\n"a/*" = { input = 1, output = 1 }\n"a/b*" = { input = 2, output = 2 }\n'
        '"a/bc" = { input = 3, output = 3 }\n"gemini-2.5-pro" = { input = 7, output = 7 }',
    )
    found = [prices.get_price(name) for name in ("a/x", "a/bx", "a/bc", "a/bcd", "gemini-2.5-pro")]
    assert [price and price.input for price in found] == [10**6 * n for n in (1, 2, 3, 2, 7)]
    assert prices.get_price("gemini-2.5-flash") == OURS.get_price("gemini-2.5-flash")
    assert (str(prices.as_of), OURS.as_of is not None) == ("2026-01-02", True)


def test_the_default_model_has_a_price_and_local_models_are_free() -> None:
    assert OURS.get_price("gemini-3.5-flash") is not None
    assert OURS.get_cost(ModelCall("local/smollm2-135m", input=5)) == 0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("not toml at all", "is not TOML"),
        ('"m" = 3', '"m" is not'),
        ('"m" = { input = 1 }', '"m" is not'),
        ('"m" = { input = -1, output = 1 }', '"m" is not'),
        ('"m" = { input = nan, output = 1 }', '"m" is not'),
        ('"m" = { input = inf, output = 1 }', '"m" is not'),
        ('"m" = { input = true, output = 1 }', '"m" is not'),
        ('"m" = { input = 0.0000001, output = 1 }', "up to 6 digits"),
        ('"m" = { input = 1, output = 1, cache = 1 }', '"m" is not'),
        ("written = 5", "`written` is not a date"),
    ],
)
def test_an_invalid_price_file_is_a_fault_of_its_setting(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(SettingsError, match="PRICES_FILE") as raised:
        make_prices(tmp_path, text)
    assert fault in str(raised.value)
    with pytest.raises(SettingsError, match=r"PRICES_FILE: .* cannot be read"):
        Prices(tmp_path / "nowhere.toml")


@given(st.lists(st.decimals(0, 1000, places=6)))
def test_sums_of_money_are_exact(amounts: list[Decimal]) -> None:
    assert Decimal(format_exact_dollars(sum(map(to_amount, amounts)))) == sum(amounts)


def test_dollars_are_formatted_for_people() -> None:
    amounts = [
        format_dollars(to_amount(Decimal(amount))) for amount in ("0", "0.00001", "0.0123", "0.99999", "1", "1234.5")
    ]
    assert amounts == ["$0.00", "<$0.0001", "$0.0123", "$1.0000", "$1.00", "$1,234.50"]
