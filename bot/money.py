"""What is spent, out of the settings: prices, the books, and the caps."""

from collections.abc import Iterable
from typing import NamedTuple

from bot.settings import Settings
from core.caps import Caps
from core.errors import SettingsError
from core.prices import Prices
from core.spending import Spending
from core.store.database import Database


class Money(NamedTuple):
    spending: Spending
    caps: Caps


def make_money(settings: Settings, database: Database, prices: Prices, models: Iterable[str]) -> Money:
    """The books and the caps.

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
    spending = Spending(database, prices)
    return Money(spending, Caps(database, prices, spending, settings.limits))
