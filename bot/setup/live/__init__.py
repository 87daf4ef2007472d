"""`parley check --live`: makes the calls of a reply in one private place of a real workspace, and deletes the result.

`command` runs a platform's table of steps, `steps` makes one step and compares the response, `recorder` sees each
HTTP request.
"""
