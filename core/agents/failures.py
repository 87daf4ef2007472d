"""Failures of a run, as errors that name the cause and the remedy for operators.

ADK raises the errors of pydantic and Python for faults of an agent. The place in ADK's code tells them apart.
"""

import traceback
from collections.abc import Mapping
from typing import Any, get_args

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.genai import types
from pydantic import ValidationError

from core.errors import InstructionError, OutputSchemaError, ParleyError, QuestionSchemaError
from core.tools.adk_requests import is_schema_refusal


def explain_failure(error: Exception) -> Exception:
    """Return the `ParleyError` for an error of a run; the error itself if it is none of an agent's known faults.

    It is the `ParleyError` among the error and its causes. An unknown variable in an instruction becomes an
    `InstructionError`, an answer that does not fit its schema an `OutputSchemaError`, and ADK's refusal of a question's
    `response_schema` a `QuestionSchemaError`.
    """
    causes = [error]
    while isinstance(cause := causes[-1].__cause__, Exception):
        causes.append(cause)
    if own := next((cause for cause in causes if isinstance(cause, ParleyError)), None):
        return own
    explained = next(filter(None, map(_explain, reversed(causes))), None)
    if explained is not None:
        explained.__cause__ = error
    return explained or error


def _explain(error: Exception) -> ParleyError | None:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        if not frame.f_globals.get("__name__", "").startswith("google.adk."):
            continue
        match frame.f_code.co_name, frame.f_locals:  # ADK 2.13
            case "inject_session_state", {"readonly_context": ReadonlyContext()} if isinstance(error, KeyError):
                return InstructionError(
                    f"{error.args[0]} Write {{name?}} if it may be missing, set it before the agent runs, or make the "
                    "instruction a function if the braces are text"
                )
            case "validate_schema", {"schema": schema} if isinstance(error, ValueError):
                agent = next((agent for each in reversed(frames) if (agent := _find_agent(each.f_locals))), None)
                of_agent = f"of the agent {agent.name}" if agent else "of an agent"
                return OutputSchemaError(
                    f"the answer {of_agent} does not fit its output_schema {_name_schema(schema)}: "
                    f"{_list_faults(error)}. Name the fields in its instruction, or choose a stronger model"
                )
    if not is_schema_refusal(error):
        return None
    return QuestionSchemaError(
        "ADK refuses the response_schema of a question: give a Python type, or a JSON Schema as a dict in which each "
        '`type` is one name, and an optional one is {"anyOf": [{"type": "string"}, {"type": "null"}]}'
    )


def _find_agent(values: Mapping[str, Any]) -> LlmAgent | None:
    return next((values[name] for name in ("self", "agent") if isinstance(values.get(name), LlmAgent)), None)


def _name_schema(schema: Any) -> str:
    if isinstance(schema, dict | types.Schema):
        return "(a JSON Schema)"
    return schema.__name__ if isinstance(schema, type) and not get_args(schema) else str(schema)


def _list_faults(error: ValueError) -> str:
    """Return the faults of an answer without its values, which may be words of users."""
    if not isinstance(error, ValidationError):
        return "it is not JSON"
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".removeprefix(": ") for fault in faults)
