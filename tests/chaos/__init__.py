"""Crash tests that kill the bot's process at each await, and judge the outcome.

Each `await`, `async for` and `async with` of `bot`, `channels` and `core` has crash points before and after the call
(`crash_points`). A process runs a scenario (`scenario`, `runner`) and kills itself at such a point
(`crashing_process`). Then a new process starts. The visible messages, the tool calls and the database rows are the
evidence (`evidence`), which `verdict` judges.

`make chaos` tries all points that the scenario reaches, `make test` a sample.
"""
