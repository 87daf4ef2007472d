"""Packages of an agent: the command that installs them beside Parley.

`uv add` puts them into the project of Parley's environment, whose lock then keeps them.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

from core.agents.config import find_agent_folder


def describe_installation(package: str, agent: str) -> str:
    """Return what to do to install a package, or all that files beside the agent list, as a phrase for the operator."""
    project = Path(sys.prefix).parent
    if not (project / "uv.lock").is_file():
        return f"install `{package}` (its package may have another name) beside Parley"
    uv = project / ".uv" / "bin" / "uv"  # of a clone, by `make`
    command = ["uv" if shutil.which("uv") or not uv.is_file() else os.path.relpath(uv), "add"]
    if project != Path.cwd():
        command += ["--project", os.path.relpath(project)]
    folder = find_agent_folder(agent)
    folders = [] if folder is None else [each for each in (folder, folder.parent) if each != project]
    for each in folders:
        if (each / "requirements.txt").is_file():
            return f"run `{shlex.join([*command, '--requirements', os.path.relpath(each / 'requirements.txt')])}`"
        if (each / "pyproject.toml").is_file():
            return f"run `{shlex.join([*command, '--editable', os.path.relpath(each)])}`"
    return f"run `{shlex.join([*command, package])}` (its package may have another name)"
