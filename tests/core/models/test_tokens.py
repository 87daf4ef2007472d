import hashlib
import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import StoreError
from core.models import tokens
from core.models.tokens import VOCABULARY_FILE, TokenCounter, estimate_tokens, fetch_vocabulary


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def small_vocabulary(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Make a small vocabulary valid instead of the real one, a download of 3.6 MB.

    Returns:
        The content of the small vocabulary.
    """
    data = b"a vocabulary"
    monkeypatch.setattr(tokens, "SHA256", hashlib.sha256(data).hexdigest())
    return data


def test_without_a_vocabulary_the_count_is_a_quarter_of_the_bytes() -> None:
    assert [estimate_tokens(text) for text in ("", "a", "abcd", "abcde", "안녕", "\ud800")] == [0, 1, 1, 2, 2, 1]


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("damaged", [False, True])
async def test_a_missing_or_damaged_vocabulary_is_logged_once_and_not_downloaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: bool
) -> None:
    if damaged:
        (tmp_path / VOCABULARY_FILE).write_bytes(b"not it")
    with caplog.at_level(logging.WARNING):
        counter = TokenCounter(tmp_path)
        assert await counter.count("hello world") == 3
        assert await counter.count("x" * 100_000) == 25_000
    assert caplog.text.count("parley warm") == 1
    assert (tmp_path / VOCABULARY_FILE).exists() == damaged


@pytest.mark.usefixtures("offline", "small_vocabulary")
async def test_an_undamaged_vocabulary_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / VOCABULARY_FILE).write_bytes(b"a vocabulary")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "elsewhere")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
    tiny = {"name": "tiny", "pat_str": r"\S+|\s+", "mergeable_ranks": ranks, "special_tokens": {}}
    monkeypatch.setattr("tiktoken_ext.openai_public.o200k_base", lambda: tiny)
    counter = TokenCounter(tmp_path)
    assert await counter.count("ab c") == 3
    assert await counter.count("ab " * 40_000) == pytest.approx(80_000, rel=0.001)  # counted in slices in a thread
    assert await counter.count("<|endoftext|>") == 13  # a user's text is never a special token


async def test_the_real_vocabulary_counts_without_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch_vocabulary(Path(".parley/tiktoken")).parent  # downloaded by `make test`
    monkeypatch.setattr(socket.socket, "connect", None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "elsewhere")
    counter = TokenCounter(folder)
    assert [await counter.count(text) for text in ("hello world", "안녕하세요", "<|endoftext|>")] == [2, 2, 7]
    assert await counter.count("hello world " * 10_000) == pytest.approx(20_001, abs=5)  # slices may cut a word


def test_fetch_writes_the_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_vocabulary: bytes) -> None:
    monkeypatch.setattr(tokens, "_download", lambda: small_vocabulary)
    assert fetch_vocabulary(tmp_path / "new").read_bytes() == small_vocabulary
    assert [path.name for path in (tmp_path / "new").iterdir()] == [VOCABULARY_FILE]


@pytest.mark.usefixtures("offline")
def test_fetch_does_nothing_if_the_file_exists(tmp_path: Path, small_vocabulary: bytes) -> None:
    (tmp_path / VOCABULARY_FILE).write_bytes(small_vocabulary)
    assert fetch_vocabulary(tmp_path) == tmp_path / VOCABULARY_FILE


def _installer(tmp_path: Path, content: bytes) -> list[str]:
    script = tmp_path / "installer.py"
    script.write_text(
        "import pathlib, sys\n"
        "assert sys.argv[-1].startswith('litellm==') and '--no-deps' in sys.argv\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('--target') + 1], 'litellm/litellm_core_utils/tokenizers')\n"
        "folder.mkdir(parents=True)\n"
        f"(folder / {VOCABULARY_FILE!r}).write_bytes({content!r})\n"
    )
    return [sys.executable, str(script)]


def test_fetch_takes_the_vocabulary_from_the_wheel_if_its_url_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_vocabulary: bytes
) -> None:
    monkeypatch.setattr(tokens, "_download", lambda: None)
    monkeypatch.setattr(
        tokens, "_list_installers", lambda: [["no-such-client"], _installer(tmp_path, small_vocabulary)]
    )
    assert fetch_vocabulary(tmp_path / "new").read_bytes() == small_vocabulary


@pytest.mark.usefixtures("small_vocabulary")
@pytest.mark.parametrize("installers", [lambda _: [], lambda path: [_installer(path, b"something else")]])
def test_a_failed_fetch_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installers: Callable[[Path], list[list[str]]]
) -> None:
    monkeypatch.setattr(tokens, "_download", lambda: None)
    monkeypatch.setattr(tokens, "_list_installers", lambda: installers(tmp_path))
    with pytest.raises(StoreError, match="save the file as"):
        fetch_vocabulary(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_fetch_names_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_vocabulary: bytes
) -> None:
    monkeypatch.setattr(tokens, "_download", lambda: small_vocabulary)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        fetch_vocabulary(tmp_path / "file")
