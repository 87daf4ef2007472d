"""What the bot says of an answer in its own name: why there is none, and which model has taken another's place."""

import logging
from collections.abc import Collection, Sequence
from datetime import date, timedelta

from channels import words
from channels.words import Words
from core.errors import CapError, ParleyError
from core.metering import ModelCall
from core.spending import Spending
from core.turn import Turn


class Apologies:
    """Finds the words.

    Args:
        spending: knows what people are called.
        admins: the ids of those who can allow more to be spent.
    """

    def __init__(self, spending: Spending | None = None, admins: Collection[str] = ()) -> None:
        self._spending = spending
        self._admins = frozenset(admins)

    async def why(self, error: Exception, turn: Turn, say: Words) -> str:
        """Why a turn has failed, in the asker's language."""
        if not isinstance(error, CapError):
            return say(error.public if isinstance(error, ParleyError) else ParleyError.public)
        until = date.fromisoformat(turn.meter.day) + timedelta(days=1)
        who = await self._who(turn.inbound.channel, say)
        return f"{say(error.public, **error.facts)} {say(words.CAP_UNTIL, day=until.isoformat(), who=who)}"

    async def _who(self, platform: str, say: Words) -> str:
        """Who can raise a cap: the admins, by name as far as they are known."""
        if self._spending is None or not self._admins:
            return say(words.CAP_OPERATOR)
        names = await self._spending.names([f"{platform}:{id_}" for id_ in self._admins])
        return ", ".join(sorted(names.values())) or say(words.CAP_ADMINS)


def level(error: Exception) -> int:
    """How loud the log tells of what a turn has failed with: that a cap holds is no fault."""
    return logging.INFO if isinstance(error, CapError) else logging.ERROR


def cause_of(error: Exception) -> str:
    """For operators, and free of secrets."""
    return f"{type(error).__name__}: {error}" if isinstance(error, ParleyError) else type(error).__name__


def marked(text: str, calls: Sequence[ModelCall], say: Words) -> str:
    """An answer, with a line below it if a model has given it that stood in for another."""
    answered = [call for call in calls if not call.error]
    stand_in = answered[-1] if answered else None
    if stand_in is None or not stand_in.instead_of or not text.strip():
        return text
    note = say(words.STOOD_IN, model=stand_in.model, other=stand_in.instead_of)
    return f"{text.rstrip()}\n\n{note}"
