"""How a database comes to have the tables of `core.store.schema`: one module a revision, in `versions`."""
