"""Check that every model has a price if spending is limited."""

from collections.abc import Iterable

from bot.settings import Settings
from core.errors import SettingsError
from core.usage.prices import Prices


def check_prices(settings: Settings, prices: Prices, models: Iterable[str]) -> None:
    """Check that each of the configured models has a price if a spending limit is set.

    Raises:
        SettingsError: a spending limit is set, and a model has no price.
    """
    if settings.spending_limits and (unpriced := [model for model in models if prices.get_price(model) is None]):
        raise SettingsError(
            *(
                f"PRICES_FILE: {model} has no price, so no spending limit would hold for it: name a file that has "
                f'"{model}" = {{ input = ..., output = ... }}, in US dollars per million tokens'
                for model in unpriced
            )
        )
