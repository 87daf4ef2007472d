"""The settings of what is spent."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from bot.settings.base import Part
from bot.settings.parsing import several
from core.usage.prices import money
from core.usage.spending_limits import Limits

#: Dollars: below a trillionth there is nothing.
Dollars = Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=6, allow_inf_nan=False)]


class MoneyPart(Part):
    """What models cost, what may be spent on them, and which take the place of one that is down."""

    prices_file: Path | None = None
    cap_per_person_day: Dollars = Decimal(0)
    cap_per_place_day: Dollars = Decimal(0)
    cap_per_model_day: Dollars = Decimal(0)
    cap_day: Dollars = Decimal(0)
    model_fallbacks: Annotated[tuple[str, ...], NoDecode] = ()

    @field_validator("model_fallbacks", mode="before")
    @classmethod
    def _are_fallbacks(cls, value: object) -> object:
        return several(value)

    def faults(self) -> Iterator[str]:
        """Yield models that are named twice."""
        yield from super().faults()
        if len(set(self.model_fallbacks)) < len(self.model_fallbacks):
            yield "MODEL_FALLBACKS: it names a model twice"

    @property
    def limits(self) -> Limits:
        """What may be spent a day."""
        return Limits(
            person=money(self.cap_per_person_day),
            place=money(self.cap_per_place_day),
            model=money(self.cap_per_model_day),
            all=money(self.cap_day),
        )
