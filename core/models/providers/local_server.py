"""Server process of the local model: llama.cpp's HTTP server on a free port.

It reads its settings from the first line of standard input, and writes its address to standard output. It ends when its
standard input ends, and so with its parent process.
"""

import json
import os
import sys

import xllamacpp


def main() -> None:
    """Serve the model of the settings `path`, `name`, `context` (tokens) and `key` until standard input ends."""
    settings = json.loads(sys.stdin.readline())
    answer = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # the runtime writes logs to standard output
    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings["path"]
    parameters.model_alias = {settings["name"]}
    parameters.n_ctx = settings["context"]
    parameters.n_parallel = 1
    parameters.use_jinja = True
    parameters.api_keys = [settings["key"]]
    # one thread: several wait for each other on busy cores
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    with answer:
        answer.write(f"{server.listening_address}\n")
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
