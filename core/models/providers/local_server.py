"""The process of the local model: llama.cpp's HTTP server, on a free port of this machine.

It reads its settings from the first line of standard input, writes its address to standard output, and ends when
standard input does: with whoever started it, however that one ends.
"""

import json
import os
import sys

import xllamacpp


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    answer = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # the runtime is talkative
    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings["path"]
    parameters.model_alias = {settings["name"]}
    parameters.n_ctx = settings["context"]
    parameters.n_parallel = 1
    parameters.use_jinja = True
    parameters.api_keys = [settings["key"]]
    # One thread: more of them wait for each other as soon as the cores have anything else to do.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    with answer:
        answer.write(f"{server.listening_address}\n")
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
