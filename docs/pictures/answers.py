"""Answers of the scripted model in the scenes of `scenes.py`."""

from chatrig.models import ReceivedRequest


def respond(request: ReceivedRequest) -> str:
    return "Linus is." if "on call" in request.text else "Hm."
