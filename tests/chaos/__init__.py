"""A process that is killed at each of its awaits, and what comes of what people said to it.

Every `await`, `async for` and `async with` of `bot`, `channels` and `core` is a place at which the process may die:
before what is awaited, or right behind it (`points`). The program is run through a scenario (`stage`) in a process that
kills itself at such a place (`victim`), and is started again. What people see then, what the tools did and
what the database holds is the evidence, and `verdict` judges it.

`make chaos` does it for all places there are, `make test` for a sample.
"""
