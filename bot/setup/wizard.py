"""`init`: asks for what is needed, one thing at a time, tries each answer at once, and keeps it in `.env`."""

import asyncio
import getpass
import os
import re
import sys
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from bot import output as tables
from bot.settings import Settings
from bot.settings.discord import DISCORD_APPS
from bot.settings.parsing import SLACK_APPS
from bot.setup import Platform, questions
from bot.setup import probes as trials
from bot.setup.env_file import EnvFile
from bot.setup.probes import Finding, Verdict
from bot.setup.questions import Question
from core.errors import SettingsError
from core.secret_redaction import add_secret

#: What may be answered to anything.
_SKIP, _KEEP = "skip", "keep"

#: What secrets begin with that tells their kind and nothing else.
_KIND = re.compile(r"xox[a-z]-|xapp-|sk-ant-|sk-|AIza")

#: From so many characters on, the last ones may be shown; and how many they are.
_LONG, _SHOWN = 20, 4

_WELCOME = """\
This writes .env in this folder, one setting after the other. Each answer is tried at once and kept when it is good.
What is secret is not shown while you type or paste it. What stands in [brackets] is kept by Enter; `skip` goes on \
without an answer. Ctrl-C stops: what is written stays, and `parley init` goes on from there."""

_SLACK = (
    f'1. Open {SLACK_APPS}, choose "Create New App", "From a manifest" and your workspace, and paste the manifest that '
    "stands above.",
    '2. Choose "Install App", "Install to Workspace".',
)

_DISCORD = (
    f'1. Open {DISCORD_APPS}, choose "New Application", give it a name, and "Create".',
    '2. Choose "Bot", switch on "Message Content Intent" under "Privileged Gateway Intents", and save. Without it, the '
    "bot has to be mentioned each time, in threads too.",
)


class _Outcome(Enum):
    GOOD = auto()
    LEFT_OUT = auto()
    ELSEWHERE = auto()  # it is not this answer that is wrong, but the one before


def interview(platform: Platform | None) -> None:
    """Ask who sits at the terminal.

    Args:
        platform: the one that is set up; it is asked for if none is given.

    Raises:
        SettingsError: there is no terminal, or `.env` cannot be read or written.
        KeyboardInterrupt, EOFError: he has had enough; what was answered is written.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SettingsError(
            "init: it asks questions, and here is no terminal to answer them at: copy .env.example to .env, fill it "
            "in, and try it with `parley check`"
        )
    file = EnvFile(Path(".env"))
    if not os.access(file.path.resolve().parent, os.W_OK):
        raise SettingsError(f"{file.path.resolve()}: it cannot be written there; go to a folder that is yours")
    with asyncio.Runner() as runner:
        _Interview(file, runner).hold(platform)


class _Interview:
    def __init__(self, file: EnvFile, runner: asyncio.Runner) -> None:
        self._file = file
        self._runner = runner

    def hold(self, platform: Platform | None) -> None:
        tables.prose(_WELCOME, "")
        for each in (platform,) if platform else self._platforms():
            tables.heading(each.value.capitalize())
            (self._slack if each is Platform.SLACK else self._discord)()
        tables.heading("The model")
        self._model()
        tables.heading("The database")
        self._ask(questions.database(str(Path(self._stands("DATA_DIR") or _default("data_dir")) / "parley.db")))

    def _platforms(self) -> Sequence[Platform]:
        every = {**{each.value: (each,) for each in Platform}, "both": tuple(Platform)}
        while True:
            said = _read("Where is the bot to be: slack, discord or both? [both] ").lower() or "both"
            if said in every:
                tables.say("")
                return every[said]
            tables.verdict(Verdict.FAIL.value, f"Write {', '.join(every)}, or Enter.")

    def _slack(self) -> None:
        if self._stands("SLACK_CLIENT_ID"):
            tables.prose("SLACK_CLIENT_ID is set: the bot serves several workspaces, which install it themselves.", "")
            return
        by_http = self._stands("SLACK_MODE") == "http"
        if not self._stands("SLACK_BOT_TOKEN"):
            tables.say(questions.manifest(), "")
            tables.prose(*_SLACK, "")
        for question in questions.slack(by_http=by_http):
            if self._ask(question) is _Outcome.LEFT_OUT:
                return

    def _discord(self) -> None:
        if not self._stands("DISCORD_BOT_TOKEN"):
            tables.prose(*_DISCORD, "")
        if self._ask(questions.discord()) is _Outcome.GOOD:
            tables.prose(
                "The link that invites it to a server:", questions.invitation(self._stands("DISCORD_BOT_TOKEN")), ""
            )

    def _model(self) -> None:
        if self._stands("AGENT") or Path(self._stands("AGENTS_FILE") or _default("agents_file")).exists():
            tables.prose("You have brought an agent: it names its models, which are tried at the end.", "")
            return
        while True:
            question = questions.model()
            if self._ask(question) is _Outcome.LEFT_OUT:
                return
            outcomes = [self._ask(each) for each in questions.access(self._stands("MODEL") or question.default)]
            if _Outcome.ELSEWHERE not in outcomes or "MODEL" in os.environ:
                return

    def _ask(self, question: Question) -> _Outcome:
        """Ask until there is a good answer, and have it written."""
        try:
            return self._answered(question)
        finally:
            tables.say("")

    def _answered(self, question: Question) -> _Outcome:
        name, answer = question.name, self._stands(question.name)
        if os.environ.get(name):
            tables.prose(f"{name} is set in the environment, which goes before {self._file.path}.")
            return self._outcome(question, self._tried(question, answer))
        tables.prose(question.where)
        shown = _masked(answer) if question.is_secret else answer or question.default
        prompt, may_keep, is_kept = f"{name}{f' [{shown}]' if shown else ''}: ", False, False
        has_failed = False
        answer = answer or question.default
        while True:
            typed = _cleaned(_read(prompt, is_secret=question.is_secret), name)
            if typed == _SKIP:
                return _Outcome.GOOD if is_kept else _Outcome.LEFT_OUT
            if typed == _KEEP and may_keep:
                self._keep(question, answer, is_told=True)
                return _Outcome.GOOD
            answer = typed or ("" if has_failed and not question.is_needed else answer)
            findings = self._tried(question, answer)
            outcome = self._outcome(question, findings)
            if outcome is _Outcome.ELSEWHERE:
                return outcome
            if is_kept := outcome is _Outcome.GOOD:
                self._keep(question, answer, is_told=not findings)
                if not any(finding.verdict is Verdict.NOTE for finding in findings):
                    return outcome
                prompt = f"Enter looks again, `{_SKIP}` goes on: "
                continue
            may_keep = not any(finding.line.startswith(name) for finding in findings)
            keep = f", `{_KEEP}` writes it untried" * may_keep
            has_failed = True
            if question.is_needed:
                prompt = f"Enter tries again, or paste another; `{_SKIP}` goes on without{keep}: "
            else:
                prompt = f"Paste another; Enter goes on without{keep}: "

    def _tried(self, question: Question, answer: str) -> list[Finding]:
        """What trying an answer shows; who sits there is shown it as well."""
        if question.is_needed and not answer:
            findings = [Finding(Verdict.FAIL, f"{question.name}: nothing was typed")]
        elif not answer.isascii() or not answer.isprintable() or " " in answer:
            findings = [Finding(Verdict.FAIL, f"{question.name}: there is something in it that is no part of one")]
        else:
            if question.is_secret:
                add_secret(answer)
            with tables.progress(question.what):
                findings = self._runner.run(trials.found(question.tries(answer)))
        for finding in findings:
            tables.verdict(finding.verdict.value, finding.line)
        return findings

    def _outcome(self, question: Question, findings: Sequence[Finding]) -> _Outcome:
        wrong = [finding.line for finding in findings if finding.verdict is Verdict.FAIL]
        if question.blames and wrong and all(line.startswith(question.blames) for line in wrong):
            return _Outcome.ELSEWHERE
        return _Outcome.LEFT_OUT if wrong else _Outcome.GOOD

    def _keep(self, question: Question, answer: str, *, is_told: bool) -> None:
        if answer == (self._stands(question.name) or question.default):
            return
        self._file.put(question.name, answer)
        if is_told:
            tables.verdict(Verdict.OK.value, f"{question.name} is written")

    def _stands(self, name: str) -> str:
        return os.environ.get(name) or self._file.values.get(name, "")


def _default(name: str) -> Path:
    """Where something is unless a setting says otherwise."""
    return Path(Settings.model_fields[name].default)


def _read(prompt: str, *, is_secret: bool = False) -> str:
    return (getpass.getpass if is_secret else input)(prompt).strip()


def _cleaned(typed: str, name: str) -> str:
    """An answer that was copied with its name, or in quotes."""
    return typed.removeprefix(f"{name}=").strip().strip("'\"")


def _masked(secret: str) -> str:
    """Enough of it for who knows it to recognise it."""
    if "://" in secret:
        try:
            return make_url(secret).render_as_string(hide_password=True)
        except (ArgumentError, ValueError):
            return "…"
    kind = _KIND.match(secret)
    end = secret[-_SHOWN:] if len(secret) >= _LONG else ""
    return f"{kind[0] if kind else ''}…{end}" if secret else ""
