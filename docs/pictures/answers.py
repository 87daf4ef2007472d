"""Answers of the scripted model in the scenes of `scenes.py`."""

from sandbox.models import ReceivedRequest


def respond(request: ReceivedRequest) -> str:
    return "Linus is." if "on call" in request.text else "Hm."
