"""Settings of prices and spending limits."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bot.settings.base import SettingsSection
from bot.settings.parsing import Names
from core.usage.prices import to_amount
from core.usage.spending_limits import SpendingLimits

#: US dollars; a millionth is the smallest amount.
Dollars = Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=6, allow_inf_nan=False)]


class SpendingSection(SettingsSection):
    """Settings of prices, spending limits and fallback models."""

    prices_file: Path | None = None
    daily_spending_limit_per_user_usd: Dollars = Decimal(0)
    daily_spending_limit_per_channel_usd: Dollars = Decimal(0)
    daily_spending_limit_per_model_usd: Dollars = Decimal(0)
    daily_spending_limit_usd: Dollars = Decimal(0)
    model_fallbacks: Names = ()

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        if len(set(self.model_fallbacks)) < len(self.model_fallbacks):
            yield "MODEL_FALLBACKS: it lists a model twice"

    @property
    def spending_limits(self) -> SpendingLimits:
        """Spending limits per day, in trillionths of a dollar; 0 for no limit."""
        return SpendingLimits(
            user=to_amount(self.daily_spending_limit_per_user_usd),
            channel=to_amount(self.daily_spending_limit_per_channel_usd),
            model=to_amount(self.daily_spending_limit_per_model_usd),
            all=to_amount(self.daily_spending_limit_usd),
        )
