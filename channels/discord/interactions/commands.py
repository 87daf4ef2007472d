"""Application commands of the bot: slash commands and menu entries."""

from collections.abc import Mapping
from typing import Any

import discord
from discord import app_commands

from channels.commands.handlers import CHOICE_COMMANDS, COMMAND_DESCRIPTIONS, EXPORT_FORMATS
from channels.commands.syntax import CommandName, CommandSyntax
from channels.discord.interactions.handler import DiscordIntakeHandler
from channels.i18n import messages as words
from channels.intake.incoming import MenuAction

#: Discord: most characters of a description, and most choices of an option.
_MAX_DESCRIPTION, MAX_CHOICES = 100, 25

#: Entries in the menu of a message. Discord has no element for ratings, as Slack has one under an answer.
MENU_ACTIONS: Mapping[MenuAction, str] = {
    "why": words.WHY_THIS,
    "good": words.GOOD_ANSWER,
    "bad": words.BAD_ANSWER,
}

#: Option of a command, and its description.
_OPTIONS: Mapping[CommandName, tuple[str, str]] = {
    "model": ("name", words.MODEL_OPTION),
    "agent": ("name", words.AGENT_OPTION),
    "export": ("form", words.EXPORT_OPTION),
    "why": ("turn", words.WHY_OPTION),
}

Command = app_commands.Command[Any, ..., None] | app_commands.ContextMenu


def make_command_syntax(prefix: str) -> CommandSyntax:
    return CommandSyntax(
        prefix,
        [*COMMAND_DESCRIPTIONS, "ask"],
        lambda say: [say(words.ASK_ABOUT), *(say(label) for label in MENU_ACTIONS.values())],
    )


def make_commands(handler: DiscordIntakeHandler, prefix: str = "") -> list[Command]:
    """Return all application commands of the bot; their callbacks call `handler`.

    The commands work in servers, in direct messages, and for users who installed the app for themselves.
    """
    syntax = make_command_syntax(prefix)
    commands: list[Command] = [
        *(_make_command(name, handler, syntax) for name in COMMAND_DESCRIPTIONS),
        _make_ask(handler, syntax),
        app_commands.ContextMenu(name=_localize(words.ASK_ABOUT), callback=handler.handle_ask_about),
        *(_make_menu_entry(action, handler) for action in MENU_ACTIONS),
    ]
    for command in commands:
        command.allowed_contexts = app_commands.AppCommandContext(guild=True, dm_channel=True, private_channel=True)
        command.allowed_installs = app_commands.AppInstallationType(guild=True, user=True)
    return commands


def _make_command(name: CommandName, handler: DiscordIntakeHandler, syntax: CommandSyntax) -> Command:
    async def run(interaction: discord.Interaction) -> None:
        await handler.handle_command(interaction, name, "")

    async def run_with(interaction: discord.Interaction, argument: str = "") -> None:
        await handler.handle_command(interaction, name, argument)

    async def complete(interaction: discord.Interaction, typed: str) -> list[app_commands.Choice[str]]:
        names = await handler.complete_name(interaction, name, typed)
        return [app_commands.Choice(name=name[:100], value=name) for name in names[:MAX_CHOICES]]

    callback: Any = run
    if name in _OPTIONS:
        option, about = _OPTIONS[name]
        callback = app_commands.rename(argument=option)(app_commands.describe(argument=_localize(about))(run_with))
    if name == "export":
        app_commands.choices(argument=[app_commands.Choice(name=form, value=form) for form in EXPORT_FORMATS])(callback)
    command: app_commands.Command[Any, ..., None] = app_commands.Command(
        name=syntax.format_name(name), description=_localize(COMMAND_DESCRIPTIONS[name]), callback=callback
    )
    if name in CHOICE_COMMANDS:
        command.autocomplete("argument")(complete)
    return command


def _make_menu_entry(action: MenuAction, handler: DiscordIntakeHandler) -> Command:
    async def use(interaction: discord.Interaction, message: discord.Message) -> None:
        await handler.handle_menu(interaction, message, action)

    return app_commands.ContextMenu(name=_localize(MENU_ACTIONS[action]), callback=use)


def _make_ask(handler: DiscordIntakeHandler, syntax: CommandSyntax) -> Command:
    @app_commands.describe(question=_localize(words.ASK_OPTION))
    async def ask(interaction: discord.Interaction, question: str) -> None:
        await handler.handle_ask(interaction, question)

    return app_commands.Command(name=syntax.format_name("ask"), description=_localize(words.ASK_HELP), callback=ask)


def _localize(sentence: str) -> app_commands.locale_str:
    return app_commands.locale_str(_capitalize(sentence), sentence=sentence)


def _capitalize(sentence: str) -> str:
    return f"{sentence[0].upper()}{sentence[1:]}"[:_MAX_DESCRIPTION]


class CommandTranslator(app_commands.Translator):
    """Translates descriptions and menu entries; the names of slash commands have no translation."""

    async def translate(
        self, string: app_commands.locale_str, locale: discord.Locale, context: app_commands.TranslationContextTypes
    ) -> str | None:
        sentence = string.extras.get("sentence")
        language = words.find_language(locale.value)
        if sentence is None or language in ("", words.ENGLISH.language):
            return None
        return _capitalize(words.messages_for(language)(sentence))
