"""Crash tests that kill the bot's process at each await, and judge the outcome.

Each `await`, `async for` and `async with` of `bot`, `channels` and `core` is a crash point, before and after the call
(`crash_points`). A process plays a scenario (`platforms`), kills itself at such a point (`crashing_process`), and a new
process starts. The visible messages, the tool calls and the database rows are the evidence (`evidence`), which
`verdict` judges.

`make chaos` tries all points, `make test` a sample.
"""
