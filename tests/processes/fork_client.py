"""Client of a fork server that runs `python -m MODULE` in a forked process.

Usage: `python -IS tests/processes/fork_client.py SOCKET -m MODULE ...`. It requests the process from the fork server at
the socket, forwards signals to it, and exits with its exit code.
"""

import json
import os
import signal
import socket
import sys


def main(address: str, flag: str, *arguments: str) -> int:
    assert flag == "-m", flag
    streams = [f"/proc/{os.getpid()}/fd/{number}" for number in (0, 1)]
    request = {"folder": os.getcwd(), "settings": dict(os.environ), "module": [*streams, *arguments]}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps(request).encode() + b"\n")
        reader = connection.makefile()
        pid = int(reader.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _frame: os.kill(pid, number))
        return int(reader.readline())


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
