from urllib.parse import parse_qs, urlsplit

import pytest

from channels.discord.invite import application_of, link, permissions
from core.errors import SettingsError
from sandbox.discord import DiscordSandbox


def test_the_invitation_asks_for_what_the_code_needs_and_for_threads_only_if_it_begins_some() -> None:
    asked = parse_qs(urlsplit(link(123, auto_thread=False)).query)
    assert asked == {"client_id": ["123"], "scope": ["bot applications.commands"], "permissions": ["274878008384"]}
    extra = permissions(auto_thread=True) & ~permissions(auto_thread=False)
    assert [name for name, is_on in extra if is_on] == ["create_public_threads"]
    assert "guild_id=7" in link(123, auto_thread=True, guild=7)


async def test_a_bots_token_tells_its_app(server: DiscordSandbox) -> None:
    assert application_of(server.bot_token) == int(server.bot_id)


@pytest.mark.parametrize("token", ["", "x.y.z", "!!.y.z", "aGVsbG8.y.z"])
def test_what_is_no_token_is_told_so(token: str) -> None:
    with pytest.raises(SettingsError, match="DISCORD_BOT_TOKEN: it is no bot's token"):
        application_of(token)
