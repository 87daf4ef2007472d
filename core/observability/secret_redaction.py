"""Redaction of keys, tokens and other secrets in logs, results and messages."""

import json
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

from core.errors import ParleyError

MASK = "[redacted]"

#: The fewest characters of a secret that is searched for within texts.
MIN_SECRET_LENGTH = 4

#: The most nesting levels of a JSON value in which secrets are searched for; deeper values are masked as a whole.
MAX_JSON_DEPTH = 200

#: Path of a value in JSON: names of fields, and positions in lists.
ValuePath = tuple[str | int, ...]

#: Keys and tokens by their vendor's format. The longest alternative has the prefixes of GitHub, GitLab, model
#: providers, npm, PyPI, Parley's tickets, Shopify and Stripe.
_VENDOR_KEYS = r"""
    \b(?:
        xox[a-z]-[\w-]{4,}                    # Slack: bot, user and other tokens
      | (?:xapp|xwfp)-[\w-]{4,}               # Slack: app-level tokens, tokens of workflows
      | [\w-]{23,28}\.[\w-]{6,7}\.[\w-]{27,}  # Discord: bot tokens
      | mfa\.[\w-]{20,}                       # Discord: tokens of users
      | (?:gh[oprsu]|glpat|gsk|hf|pplx|xai|r8|npm|pypi|plt|shp(?:at|ca|pa|ss)|[rs]k_(?:live|test))[_-][\w-]{16,}
      | github_pat_\w{20,}
      | A[KS]IA[A-Z0-9]{12,}                  # AWS: the ids of access keys
      | ya29\.[\w.-]{10,}                     # Google: access tokens
      | 1//0[\w-]{16,}                        # Google: refresh tokens
      | GOCSPX-[\w-]{10,}                     # Google: secrets of OAuth clients
      | AIza[\w-]{20,}                        # Google: API keys
      | hv[bs]\.[\w-]{16,}                    # HashiCorp Vault
      | SG\.[\w-]{16,}\.[\w-]{16,}            # SendGrid
      | sk-[\w-]{12,}                         # OpenAI and Anthropic keys
    )
"""

_VENDOR_KEY_PATTERN = re.compile(_VENDOR_KEYS, re.VERBOSE)

#: All secrets by their format.
_SECRET_PATTERNS = re.compile(
    rf"""
    {_VENDOR_KEYS}
    | (?<![\w-])(?>[\w-]*?\beyJ)[\w-]{{8,}}+\.[\w-]{{8,}}+\.[\w-]*  # a JSON Web Token, and the word that it ends
    | -----BEGIN\s[A-Z ]*PRIVATE\sKEY(?:\sBLOCK)?-----(?:(?!-----END)[\s\S])*
    | (?<=/)(?:
        (?<=://)[^\s/:@]*:(?!\*\*\*@)[^\s/]+(?=@)  # user and password in a URL, unless SQLAlchemy has masked it
      | (?<=://)[^\s/:@[]*:(?!\d{{1,5}}[/\s]|\*\*\*@)(?=\S)(?:(?!://)[^@\r\n"'<>]){{1,128}}(?=@)  # with slash or space
      | [\w-]{{80,}}                            # Discord: the token of an interaction, in an address
      | (?<=/webhooks/)\d+/[\w-]{{20,}}         # Discord: a webhook's address
      | (?<=hooks\.slack\.com/)[\w/-]{{8,}}     # Slack: an address at which anybody may speak
    )
    | (?<=[?&]ticket=)[\w.~%-]+               # a Slack socket's address
    | (?i:(?<=bearer\s))[\w.~+/=-]{{8,}}        # an Authorization header
    """,
    re.VERBOSE,
)

#: The ends of names of secrets before a colon or an equals sign.
_KEY_NAME = r"(?:passw(?:or)?d|passphrase|secret(?:[_-]?key)?|token|(?:api|access|private)[_-]?key)"

#: A secret in quotes after its name, in JSON, in JSON within JSON, and in Python.
_QUOTED_SECRET = re.compile(
    rf"""
    (?=p[ar]|se|to|a[cpu]|co)  # to be quick elsewhere
    (?P<shown> (?:{_KEY_NAME}|authorization|cookie) \\*["']?\s*[:=]\s* (?: (?P<quote>["']) | (?P<escaped>\\+["']) ) )
    (?: (?(quote) (?: \\. | (?!(?P=quote))[^\\\r\n] ) | (?!(?<!\\)(?P=escaped))[^\r\n] ) )++
    """,
    re.VERBOSE | re.IGNORECASE,
)

#: A secret without quotes after its name: in a URL, a form, a header, a line of settings.
_UNQUOTED_SECRET = re.compile(
    rf"""
    (?=[?&]|p[ar]|se|to|a[cpu]|x-)  # to be quick elsewhere
    (?P<shown>
        [?&](?:key|code|sig|signature|auth)=
      | {_KEY_NAME}=
      | {_KEY_NAME}:[ \t]{{1,3}} (?=[^\s"']{{6}}) (?=[^\s"']{{0,64}}\d)  # else it is a sentence
      | (?:x-(?:[a-z]{{1,20}}-)?(?:api-key|token|signature)|private-token|set-cookie)["']?\s*[:=,]\s*["']?
      | authorization["']?\s*[:=]\s*["']? (?:(?:basic|bearer|bot|digest|negotiate|token)\s+)?+
    )
    (?!\[redacted\]) [^\s&"'#]+
    """,
    re.VERBOSE | re.IGNORECASE,
)

#: A header with cookies: its whole line.
_COOKIES = re.compile(r"(?P<shown>\bcookie:[ \t]{0,3})(?=[^\s=;,\"']{1,64}=)[^\r\n\"']+", re.IGNORECASE)

#: Names in JSON objects whose values are always redacted.
_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase|code)|secret|token\b|tokens?$|api[_-]?key|access[_-]?key|private[_-]?key|authorization"
    r"|credential|cookie",
    re.IGNORECASE,
)

#: The most nesting levels of a JSON value in `redact_json_secrets`; deeper values are redacted as a whole.
MAX_REDACTED_LEVELS = 20

_known: set[str] = set()

#: Notations of the newest secrets of `add_temporary_secret`, oldest first. A log line is searched for each.
_temporary: dict[str, None] = {}
MAX_TEMPORARY_NOTATIONS = 4096


def add_secret(secret: str) -> None:
    """Add a text to the known secrets, which are redacted in this process from now on.

    The text is also redacted as escaped in Python, JSON and URLs. A text of fewer than 4 characters is ignored.
    """
    if len(secret) >= MIN_SECRET_LENGTH:
        _known.update(_list_notations(secret))


def add_temporary_secret(secret: str) -> None:
    """Do the same as `add_secret`, until many others follow."""
    if len(secret) < MIN_SECRET_LENGTH:
        return
    for notation in _list_notations(secret):
        _temporary.pop(notation, None)
        _temporary[notation] = None
    while len(_temporary) > MAX_TEMPORARY_NOTATIONS:
        del _temporary[next(iter(_temporary))]


def _list_notations(secret: str) -> set[str]:
    """Return a text as it is, and as escaped in Python, JSON and URLs."""
    return {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe="")}


def redact_secrets(text: str) -> str:
    """Return a text with `[redacted]` in place of known and probable secrets.

    Known secrets are those of `add_secret`. Probable secrets have the format of common keys and tokens, or follow a
    name such as `password=`.
    """
    redacted = redact_secret_formats(text)
    for pattern in (_COOKIES, _QUOTED_SECRET, _UNQUOTED_SECRET):
        redacted = pattern.sub(rf"\g<shown>{MASK}", redacted)
    return redacted


def redact_secret_formats(text: str) -> str:
    """Return a text with `[redacted]` for known secrets and texts in the format of one, whatever their name."""
    return _redact(text, _SECRET_PATTERNS)


def redact_vendor_keys(text: str) -> str:
    """Return a text with `[redacted]` for known secrets and keys in a vendor's format; `?code=` and the like stay."""
    return _redact(text, _VENDOR_KEY_PATTERN)


def _redact(text: str, secrets: re.Pattern[str]) -> str:
    return _replace(text, [found.span() for found in secrets.finditer(text)] + _find_known(text), lambda _: MASK)


def replace_known_secrets(text: str, mask: Callable[[int], str]) -> str:
    """Return a text with only the secrets of `add_secret` replaced; `mask` gets the length of each."""
    return _replace(text, _find_known(text), mask)


def has_known_secret(texts: Iterable[str]) -> bool:
    """Return whether one of many texts has a secret of `add_secret`."""
    joined = "\0".join(texts)
    return any(secret in joined for secret in (*_known, *_temporary))


def _find_known(text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each known secret in a text; spans may overlap."""
    known = (secret for secret in (*_known, *_temporary) if secret in text)
    return [found.span() for secret in known for found in re.finditer(re.escape(secret), text)]


def _replace(text: str, hidden: list[tuple[int, int]], mask: Callable[[int], str]) -> str:
    """Return a text with spans replaced; spans that overlap are replaced as one."""
    merged = list[tuple[int, int]]()
    for start, stop in sorted(hidden):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    shown = list[str]()
    end = 0
    for start, stop in merged:
        shown += [text[end:start], mask(stop - start)]
        end = stop
    return "".join([*shown, text[end:]])


def redact_json_secrets(value: Any, depth: int = MAX_REDACTED_LEVELS) -> Any:
    """Return a copy of a JSON value with `[redacted]` for secrets.

    All texts and names are changed by `redact_secrets`. Texts, lists and objects under names such as `password` or
    `token` are replaced as a whole, and so are lists and objects below `depth` levels. Numbers, booleans and None stay.
    """
    match value:
        case str():
            return redact_secrets(value)
        case dict() | list() if not depth:
            return MASK
        case dict():
            return {redact_secrets(str(name)): _mask_value(str(name), item, depth - 1) for name, item in value.items()}
        case list():
            return [redact_json_secrets(item, depth - 1) for item in value]
        case _:
            return value


def _mask_value(name: str, value: Any, depth: int) -> Any:
    is_named = _SECRET_NAME.search(name) and not isinstance(value, (bool, int, float, type(None)))
    return MASK if is_named else redact_json_secrets(value, depth)


class RunSecrets:
    """Secrets of one run: people's answers and arguments of tools that a schema marks as secret.

    Only the run itself reads them. `mask` replaces them for all other readers: the marked values, and their copies in
    the texts and results of the run. A copy is found if it is a whole value, or a part of a text of at least
    `MIN_SECRET_LENGTH` characters.

    Attributes:
        paths: the paths of the secrets in the arguments or the response of a call, by the id of the call.
        prompts: the masked texts of users' messages that answer a question with a secret field, by event id.
    """

    def __init__(self) -> None:
        self.paths = dict[str, set[ValuePath]]()
        self.prompts = dict[str, str]()
        self._values = dict[str | int | float, None]()  # in the order in which they were added
        self._copies: re.Pattern[str] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self._values or self.paths or self.prompts)

    def add(self, value: Any) -> None:
        """Add a secret JSON value: each text and number in it, except empty ones."""
        known = len(self._values)
        for secret in _iterate_scalars(value):
            self._values.setdefault(secret)
        if len(self._values) == known:
            return
        texts = {str(secret) for secret in self._values}
        long = {notation for text in texts if len(text) >= MIN_SECRET_LENGTH for notation in _list_notations(text)}
        self._copies = re.compile("|".join(map(re.escape, sorted(long, key=len, reverse=True)))) if long else None

    def add_call(self, call_id: str, value: Any, paths: Collection[ValuePath], prefix: ValuePath = ()) -> None:
        """Add the secrets at `paths` of a call's arguments or response; `prefix` is the path of `value` there."""
        for path in paths:
            self.paths.setdefault(call_id, set()).add((*prefix, *path))
        self.add([get_value(value, path) for path in paths])

    def mask(self, value: Any, paths: Set[ValuePath] = frozenset(), path: ValuePath = ()) -> Any:
        """Return a copy of a JSON value with `[redacted]` for the secrets.

        The values at `paths` are masked as a whole, whatever they are; None stays. `path` is that of `value` itself.
        """
        is_scalar = isinstance(value, str | int | float) and not isinstance(value, bool)
        if (path in paths and value is not None) or (is_scalar and value in self._values) or len(path) > MAX_JSON_DEPTH:
            return MASK
        match value:
            case str():
                return self._copies.sub(MASK, value) if self._copies else value
            case bytes():
                return MASK if self.is_in(value) else value
            case Mapping():
                return {self.mask(name): self.mask(item, paths, (*path, name)) for name, item in value.items()}
            case list() | tuple():
                return [self.mask(item, paths, (*path, i)) for i, item in enumerate(value)]
            case _:
                return value

    def is_in(self, data: bytes) -> bool:
        """Return whether bytes have a copy of a secret of ASCII characters."""
        return self._copies is not None and self._copies.search(data.decode("latin-1")) is not None

    def find_paths(self, value: Any, path: ValuePath = ()) -> Iterator[ValuePath]:
        """Yield the paths of the texts and numbers in a JSON value that have a secret."""
        match value:
            case _ if len(path) > MAX_JSON_DEPTH:
                yield path
            case Mapping():
                for name, item in value.items():
                    yield from self.find_paths(item, (*path, name))
            case list() | tuple():
                for i, item in enumerate(value):
                    yield from self.find_paths(item, (*path, i))
            case _:
                if self.mask(value) != value:
                    yield path

    def to_json(self) -> dict[str, Any]:
        """Return the secrets as JSON, to store them with the events of the run."""
        paths = {id_: [list(path) for path in found] for id_, found in self.paths.items()}
        return {"values": list(self._values), "paths": paths, "prompts": dict(self.prompts)}

    def update(self, data: Mapping[str, Any]) -> None:
        """Add the secrets in the output of `to_json`."""
        self.add(data["values"])
        for id_, paths in data["paths"].items():
            self.paths.setdefault(id_, set()).update(map(tuple, paths))
        self.prompts |= data["prompts"]


def get_value(value: Any, path: ValuePath) -> Any:
    for key in path:
        value = value[key]
    return value


def _iterate_scalars(value: Any) -> Iterator[str | int | float]:
    pending = [value]
    while pending:
        match pending.pop():
            case bool() | None | "":
                continue
            case str() | int() | float() as scalar:
                yield scalar
            case Mapping() as part:
                pending += part.values()
            case list() | tuple() as part:
                pending += part


_run_secrets: ContextVar[RunSecrets | None] = ContextVar("run_secrets", default=None)


def set_run_secrets(secrets: RunSecrets) -> None:
    """Set the secrets of the run of this task and of those that it starts."""
    _run_secrets.set(secrets)


def get_run_secrets() -> RunSecrets | None:
    return _run_secrets.get()


def format_error(error: BaseException) -> str:
    """Return an exception as text for a log.

    For a `ParleyError` this is its type, its text and the type of its cause. For any other exception it is the type and
    the traceback, without the text, which may contain secrets or messages of users.
    """
    if isinstance(error, ParleyError):
        cause = f" (from {type(error.__cause__).__name__})" if error.__cause__ else ""
        return f"{type(error).__name__}: {error}{cause}"
    return "".join([f"{type(error).__name__}, raised at\n", *traceback.format_tb(error.__traceback__)]).rstrip()


def describe_failure(error: BaseException) -> tuple[str, dict[str, str]]:
    """Return an exception as a line for the log, and the attributes of the log record.

    For a `ParleyError`, the line is that of `format_error`. For any other exception, it is the type and the text, and
    the attribute `details` has the traceback, with the causes. Secrets are redacted in both.
    """
    if isinstance(error, ParleyError):
        return format_error(error), {}
    line = "".join(traceback.format_exception_only(error)).strip()
    return redact_secrets(line), {"details": redact_secrets("".join(traceback.format_exception(error))).rstrip()}
