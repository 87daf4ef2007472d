"""`parley init`: asks for the required settings, checks them and writes `.env`."""

import asyncio
import getpass
import os
import sys
from collections.abc import Sequence
from enum import Enum, auto
from itertools import chain
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from bot import output as tables
from bot.settings import Settings
from bot.settings.discord import DISCORD_APPS
from bot.settings.parsing import SECRET_PREFIX, SLACK_APPS
from bot.setup import SetupPlatform, questions
from bot.setup import probes as trials
from bot.setup.env_file import EnvFile
from bot.setup.manifest_command import CREATE_APP_URL, format_create_link
from bot.setup.probes import CheckResult, CheckVerdict
from bot.setup.questions import SetupQuestion
from core.errors import SettingsError
from core.observability.secret_redaction import add_secret

#: Answers that every question accepts.
_SKIP_WORD, _KEEP_WORD = "skip", "keep"

#: Fewest characters of a secret whose end is shown, and the number of characters shown.
_MIN_SECRET_CHARS, _SUFFIX_CHARS = 20, 4

_WELCOME = """\
This writes .env in this folder, one setting at a time. Each answer is checked and then saved.
Secrets are hidden while you type or paste them. Enter keeps the value in [brackets]; `skip` goes on without an \
answer. Ctrl-C stops; run `parley init` again to continue."""

_SLACK_LINK = '1. Open this link, choose your workspace, then "Next" and "Create". Slack fills in the manifest:'

_SLACK_PASTE = (
    f'1. Open {SLACK_APPS}, choose "Create New App", "From a manifest" and your workspace, and paste the manifest '
    "above with the address of your bot."
)

_SLACK_INSTALL = '2. Choose "Install App", "Install to Workspace".'

#: The terminal may have no links, or Slack's newer page drop the manifest:
#: github.com/agentconnect-md/agentconnect/pull/19.
_SLACK_EMPTY = 'If Slack shows no manifest: choose "From a manifest", and paste the output of `parley manifest slack`.'

_DISCORD_STEPS = (
    f'1. Open {DISCORD_APPS}, choose "New Application", give it a name, and "Create".',
    '2. Choose "Bot", switch on "Message Content Intent" under "Privileged Gateway Intents", and save. Without it, '
    "users must mention the bot in every message, in threads too.",
)


class _AnswerResult(Enum):
    """Result of a question.

    Attributes:
        GOOD: the setting has a value that passes its check, or that the user accepts despite a failure.
        LEFT_OUT: the user continues without a valid value.
        EARLIER_INVALID: the answer to an earlier question is wrong.
    """

    GOOD = auto()
    LEFT_OUT = auto()
    EARLIER_INVALID = auto()


def run_wizard(platform: SetupPlatform | None) -> bool:
    """Ask for the required settings in the terminal, check them and write `.env`.

    It returns False if the user stops, which is printed; the answers so far are saved.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SettingsError("init needs a terminal: copy .env.example to .env, fill it in, and run `parley check`")
    file = EnvFile(Path(".env"))
    if not os.access(file.path.resolve().parent, os.W_OK):
        raise SettingsError(f"{file.path.resolve()}: this folder is not writable: change to another one")
    with asyncio.Runner() as runner:
        wizard = _Wizard(file, runner)
        try:
            wizard.run(platform)
        except (EOFError, KeyboardInterrupt):
            outcome = "The answers so far are saved" if wizard.has_saved else "Nothing is saved"
            tables.print_lines("", f"Stopped. {outcome}; run `parley init` to continue.")
            return False
    return True


class _Wizard:
    """Dialog of the wizard in the terminal."""

    def __init__(self, file: EnvFile, runner: asyncio.Runner) -> None:
        self._file = file
        self._runner = runner
        self.has_saved = False

    def run(self, platform: SetupPlatform | None) -> None:
        tables.print_wrapped(_WELCOME, "")
        for platform_ in (platform,) if platform else self._ask_platforms():
            tables.print_heading(platform_.value.capitalize())
            (self._set_up_slack if platform_ is SetupPlatform.SLACK else self._set_up_discord)()
        tables.print_heading("Model")
        self._set_up_model()
        tables.print_heading("Database")
        self._ask(
            questions.database_question(
                str(Path(self._current_value("DATA_DIR") or _default_path("data_dir")) / "parley.db")
            )
        )

    def _ask_platforms(self) -> Sequence[SetupPlatform]:
        choices = {**{choice.value: (choice,) for choice in SetupPlatform}, "both": tuple(SetupPlatform)}
        while True:
            answer = _prompt("Platform (slack, discord or both) [both]: ").lower() or "both"
            if answer in choices:
                tables.print_lines("")
                return choices[answer]
            tables.print_verdict(CheckVerdict.FAIL.value, f"Write {', '.join(choices)}, or Enter.")

    def _set_up_slack(self) -> None:
        if self._current_value("SLACK_CLIENT_ID"):
            tables.print_wrapped("SLACK_CLIENT_ID is set: each workspace installs the app itself.", "")
            return
        by_http = self._current_value("SLACK_MODE") == "http"
        if not self._current_value("SLACK_BOT_TOKEN"):
            manifest = questions.slack_manifest()
            if by_http:  # Slack calls the address in the manifest, which the user has to fill in first
                tables.print_lines(manifest, "")
                tables.print_wrapped(_SLACK_PASTE, _SLACK_INSTALL, "")
            else:
                tables.print_wrapped(_SLACK_LINK)
                tables.print_link(CREATE_APP_URL, format_create_link(manifest))  # 3 kB are more than a screen
                tables.print_wrapped(_SLACK_EMPTY, _SLACK_INSTALL, "")
        asked = chain(questions.slack_questions(by_http=by_http), questions.slack_sign_in_questions())
        for question in asked:
            if self._ask(question) is _AnswerResult.LEFT_OUT:
                return

    def _set_up_discord(self) -> None:
        if not self._current_value("DISCORD_BOT_TOKEN"):
            tables.print_wrapped(*_DISCORD_STEPS, "")
        if self._ask(questions.discord_question()) is _AnswerResult.GOOD:
            tables.print_wrapped(
                "Open this link to invite the bot to a server:",
                questions.discord_invite_link(self._current_value("DISCORD_BOT_TOKEN")),
                "",
            )
            for question in questions.discord_sign_in_questions():
                self._ask(question)

    def _set_up_model(self) -> None:
        if (
            self._current_value("AGENT")
            or Path(self._current_value("AGENTS_FILE") or _default_path("agents_file")).exists()
        ):
            tables.print_wrapped("Your own agent names its models. They are checked at the end.", "")
            return
        while True:
            question = questions.model_question()
            if self._ask(question) is _AnswerResult.LEFT_OUT:
                return
            outcomes = [
                self._ask(question)
                for question in questions.model_access_questions(self._current_value("MODEL") or question.default)
            ]
            if _AnswerResult.EARLIER_INVALID not in outcomes or "MODEL" in os.environ:
                return

    def _ask(self, question: SetupQuestion) -> _AnswerResult:
        """Ask until an answer passes its check or the user skips the question.

        A valid answer is saved to `.env`, and an invalid one only if the user types `_KEEP_WORD`. If the setting is in
        the environment, nothing is asked or saved: that value is checked, and its result returned.
        """
        try:
            return self._ask_until_valid(question)
        finally:
            tables.print_lines("")

    def _ask_until_valid(self, question: SetupQuestion) -> _AnswerResult:
        name = question.name
        answer = self._current_value(question.name)
        if os.environ.get(name):
            tables.print_wrapped(f"{name} is set in the environment, which overrides {self._file.path}.")
            return self._judge(question, self._check_answer(question, answer))
        tables.print_wrapped(question.instructions)
        default = _mask(answer) if question.is_secret else answer or question.default
        prompt = f"{name}{f' [{default}]' if default else ''}: "
        may_keep = False
        is_kept = False
        has_failed = False
        answer = answer or question.default
        while True:
            typed = _clean(_prompt(prompt, is_secret=question.is_secret), name)
            if typed == _SKIP_WORD:
                return _AnswerResult.GOOD if is_kept else _AnswerResult.LEFT_OUT
            if typed == _KEEP_WORD and may_keep:
                self._save(question, answer, is_announced=True)
                return _AnswerResult.GOOD
            answer = typed or ("" if has_failed and not question.is_required else answer)
            findings = self._check_answer(question, answer)
            outcome = self._judge(question, findings)
            if outcome is _AnswerResult.EARLIER_INVALID:
                return outcome
            if is_kept := outcome is _AnswerResult.GOOD:
                self._save(question, answer, is_announced=not findings)
                if not any(finding.verdict is CheckVerdict.NOTE for finding in findings):
                    return outcome
                prompt = f"Enter checks again, `{_SKIP_WORD}` goes on: "
                continue
            may_keep = not any(finding.line.startswith(name) for finding in findings)
            keep_hint = f", `{_KEEP_WORD}` saves it unchecked" * may_keep
            has_failed = True
            if question.is_required:
                prompt = f"Enter tries again, or paste another; `{_SKIP_WORD}` goes on without{keep_hint}: "
            else:
                prompt = f"Paste another; Enter goes on without{keep_hint}: "

    def _check_answer(self, question: SetupQuestion, answer: str) -> list[CheckResult]:
        """Check an answer, after registering a secret one for redaction; print and return the results."""
        name = question.name
        if question.is_required and not answer:
            findings = [CheckResult(CheckVerdict.FAIL, f"{name}: the answer is empty")]
        elif not answer.isascii() or not answer.isprintable() or " " in answer:
            findings = [CheckResult(CheckVerdict.FAIL, f"{name}: it contains a space or another invalid character")]
        else:
            if question.is_secret:
                add_secret(answer)
            with tables.show_progress(question.progress):
                findings = self._runner.run(trials.run_check(question.check(answer)))
        for finding in findings:
            tables.print_verdict(finding.verdict.value, finding.line)
        return findings

    def _judge(self, question: SetupQuestion, findings: Sequence[CheckResult]) -> _AnswerResult:
        failures = [finding.line for finding in findings if finding.verdict is CheckVerdict.FAIL]
        if (
            question.earlier_setting
            and failures
            and all(line.startswith(question.earlier_setting) for line in failures)
        ):
            return _AnswerResult.EARLIER_INVALID
        return _AnswerResult.LEFT_OUT if failures else _AnswerResult.GOOD

    def _save(self, question: SetupQuestion, answer: str, *, is_announced: bool) -> None:
        """Write an answer to `.env`, unless it is the setting's value there, or without one, its default."""
        if answer == (self._current_value(question.name) or question.default):
            return
        self._file.set_value(question.name, answer)
        self.has_saved = True
        if is_announced:
            tables.print_verdict(CheckVerdict.OK.value, f"{question.name} is saved")

    def _current_value(self, name: str) -> str:
        return os.environ.get(name) or self._file.values.get(name, "")


def _default_path(name: str) -> Path:
    return Path(Settings.model_fields[name].default)


def _prompt(prompt: str, *, is_secret: bool = False) -> str:
    return (getpass.getpass if is_secret else input)(prompt).strip()


def _clean(typed: str, name: str) -> str:
    """Return an answer without the setting's name and quotation marks copied with it."""
    return typed.removeprefix(f"{name}=").strip().strip("'\"")


def _mask(secret: str) -> str:
    """Return a secret with only its vendor's prefix and last characters, and a URL without its password."""
    if "://" in secret:
        try:
            return make_url(secret).render_as_string(hide_password=True)
        except (ArgumentError, ValueError):
            return "…"
    kind = SECRET_PREFIX.match(secret)
    end = secret[-_SUFFIX_CHARS:] if len(secret) >= _MIN_SECRET_CHARS else ""
    return f"{kind[0] if kind else ''}…{end}" if secret else ""
