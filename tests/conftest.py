"""How long the tests look for what nobody thought of: `make test ARGS="--hypothesis-profile thorough"` looks longer."""

from hypothesis import settings

settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile("quick")
