"""The bot's application commands, and what Discord knows of them."""

from collections.abc import Mapping
from typing import Any

import discord
from discord import app_commands
from discord.http import Route

from channels.commands.handlers import CHOICE_COMMANDS, COMMANDS, EXPORT_FORMATS, CommandName, CommandSyntax
from channels.discord.interactions.handler import DiscordInteractionHandler
from channels.i18n import messages as words

#: What a command is, in Discord's own form; the rest is what Discord adds.
_FIELDS = (
    "name",
    "name_localizations",
    "type",
    "description",
    "description_localizations",
    "options",
    "contexts",
    "integration_types",
)

#: Discord: in the description of a command, or in the choices of an option.
_MOST_DESCRIBED, MOST_CHOICES = 100, 25

#: How they are given.
WAYS = CommandSyntax(
    {name: f"/{name}" for name in COMMANDS}, "/ask", lambda say: [say(words.ASK_ABOUT), say(words.WHY_THIS)]
)

#: Option of a command, and its description.
_OPTIONS: Mapping[CommandName, tuple[str, str]] = {
    "model": ("name", words.MODEL_NAME),
    "agent": ("name", words.AGENT_NAME),
    "export": ("form", words.EXPORT_FORM),
    "why": ("turn", words.WHY_TURN),
}

Command = app_commands.Command[Any, ..., None] | app_commands.ContextMenu


def commands_of(handler: DiscordInteractionHandler) -> list[Command]:
    """Return all commands: for servers, direct messages, and users who installed the app for themselves."""
    made: list[Command] = [_command(name, handler) for name in COMMANDS]
    made += [_why_this(handler), _ask(handler), _ask_about(handler)]
    for command in made:
        command.allowed_contexts = app_commands.AppCommandContext(guild=True, dm_channel=True, private_channel=True)
        command.allowed_installs = app_commands.AppInstallationType(guild=True, user=True)
    return made


def _command(name: CommandName, handler: DiscordInteractionHandler) -> Command:
    async def run(interaction: discord.Interaction) -> None:
        await handler.command(interaction, name, "")

    async def run_with(interaction: discord.Interaction, argument: str = "") -> None:
        await handler.command(interaction, name, argument)

    async def complete(interaction: discord.Interaction, typed: str) -> list[app_commands.Choice[str]]:
        names = await handler.complete(interaction, name, typed)
        return [app_commands.Choice(name=one[:100], value=one) for one in names[:MOST_CHOICES]]

    callback: Any = run
    if name in _OPTIONS:
        option, about = _OPTIONS[name]
        callback = app_commands.rename(argument=option)(app_commands.describe(argument=_described(about))(run_with))
    if name == "export":
        app_commands.choices(argument=[app_commands.Choice(name=form, value=form) for form in EXPORT_FORMATS])(callback)
    command: app_commands.Command[Any, ..., None] = app_commands.Command(
        name=name, description=_described(COMMANDS[name]), callback=callback
    )
    if name in CHOICE_COMMANDS:
        command.autocomplete("argument")(complete)
    return command


def _why_this(handler: DiscordInteractionHandler) -> Command:
    async def give(interaction: discord.Interaction, message: discord.Message) -> None:
        await handler.why(interaction, message)

    return app_commands.ContextMenu(name=_described(words.WHY_THIS), callback=give)


def _ask(handler: DiscordInteractionHandler) -> Command:
    @app_commands.describe(question=_described(words.ASK_WHAT))
    async def give(interaction: discord.Interaction, question: str) -> None:
        await handler.ask(interaction, question)

    return app_commands.Command(name="ask", description=_described(words.ASK_DOES), callback=give)


def _ask_about(handler: DiscordInteractionHandler) -> Command:
    async def give(interaction: discord.Interaction, message: discord.Message) -> None:
        await handler.ask_about(interaction, message)

    return app_commands.ContextMenu(name=_described(words.ASK_ABOUT), callback=give)


def _described(sentence: str) -> app_commands.locale_str:
    return app_commands.locale_str(_shown(sentence), sentence=sentence)


def _shown(sentence: str) -> str:
    return f"{sentence[0].upper()}{sentence[1:]}"[:_MOST_DESCRIBED]


class Translator(app_commands.Translator):
    """What commands do, in the languages that the bot speaks; what they are called is of no language."""

    async def translate(
        self, string: app_commands.locale_str, locale: discord.Locale, context: app_commands.TranslationContextTypes
    ) -> str | None:
        del context
        sentence, language = string.extras.get("sentence"), words.find_language(locale.value)
        if sentence is None or language in ("", words.ENGLISH.language):
            return None
        return _shown(words.messages_for(language)(sentence))


async def sync(tree: app_commands.CommandTree[Any]) -> bool:
    """Register the commands, unless Discord has exactly these: it limits how often that may be done.

    Returns:
        Whether anything was changed.
    """
    client, translator = tree.client, tree.translator
    assert client.application_id is not None, "the client is logged in"
    assert translator is not None, "the tree has been given one"
    wanted = [_essence(await command.get_translated_payload(tree, translator)) for command in tree.get_commands()]
    # As they come: discord.py's own reading of them loses where they may be used.
    route = Route("GET", "/applications/{application_id}/commands", application_id=client.application_id)
    registered = await client.http.request(route, params={"with_localizations": "true"})
    if _sorted(wanted) == _sorted([_essence(command) for command in registered]):
        return False
    await tree.sync()
    return True


def _essence(command: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared."""
    return {field: _filled(command[field]) for field in _FIELDS if command.get(field)}


def _filled(value: Any) -> Any:
    """What is empty, Discord may leave out."""
    if isinstance(value, dict):
        return {name: _filled(inner) for name, inner in value.items() if inner}
    return [_filled(inner) for inner in value] if isinstance(value, list) else value


def _sorted(commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(commands, key=lambda command: (command["type"], command["name"]))
