"""What is spent, out of the settings: the books, and whether the caps can hold."""

from collections.abc import Iterable

from bot.settings import Settings
from core.errors import SettingsError
from core.usage.prices import Prices


def check_prices(settings: Settings, prices: Prices, models: Iterable[str]) -> None:
    """See that what models cost is known, where there is a cap.

    Args:
        models: all that the settings have asked.

    Raises:
        SettingsError: there is a cap and no price for one of the models.
    """
    if settings.limits and (unpriced := [model for model in models if prices.price(model) is None]):
        raise SettingsError(
            *(
                f"PRICES_FILE: no price is known for {model}, so no cap would hold for it: name a file that has "
                f'"{model}" = {{ input = ..., output = ... }}, in dollars for a million tokens'
                for model in unpriced
            )
        )
