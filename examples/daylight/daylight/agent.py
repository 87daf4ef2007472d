"""An agent with packages of its own: it knows sunrise, sunset and public holidays."""

from datetime import date

import holidays
from astral.geocoder import database, lookup
from astral.location import Location
from google.adk.agents import Agent


def get_daylight(city: str, day: str) -> dict[str, str]:
    """Return the local times of sunrise and sunset.

    Args:
        city: a large city, in English.
        day: such as 2026-12-24.
    """
    try:
        place = Location(lookup(city, database()))
    except KeyError:
        return {"error": f"There is no city {city} in the list: take the nearest capital."}
    try:
        sunrise, sunset = place.sunrise(date.fromisoformat(day)), place.sunset(date.fromisoformat(day))
    except ValueError as error:  # a wrong date, or a day without sunrise
        return {"error": str(error)}
    return {"sunrise": f"{sunrise:%H:%M}", "sunset": f"{sunset:%H:%M}"}


def list_public_holidays(country: str, year: int) -> dict[str, str]:
    """Return the names of a country's public holidays by date.

    Args:
        country: two letters, such as KR.
    """
    try:
        found = holidays.country_holidays(country.upper(), years=year)
    except NotImplementedError:
        return {"error": f"There are no holidays for the country {country}."}
    return {day.isoformat(): name for day, name in sorted(found.items())}


root_agent = Agent(
    name="daylight",
    instruction="Answer questions about daylight and public holidays. Take times and dates from your tools.",
    tools=[get_daylight, list_public_holidays],
)
