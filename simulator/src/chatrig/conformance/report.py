"""Report of a suite as Markdown, JSON and JUnit XML."""

import json
from collections.abc import Sequence
from xml.etree import ElementTree

from chatrig.conformance.runner import CaseResult
from chatrig.conformance.verdicts import FAILURES, Outcome


def write_markdown(results: Sequence[CaseResult]) -> str:
    """Return a table with a row for each case and a column for each platform."""
    platforms = list(dict.fromkeys(result.platform for result in results))
    verdicts = {(result.case.number, result.platform): str(result.verdict) for result in results}
    cases = {result.case.number: result.case.name for result in results}
    lines = [
        f"| | Case | {' | '.join(platform.title() for platform in platforms)} |",
        f"| --- | --- | {' | '.join('---' for _ in platforms)} |",
    ]
    for number, name in cases.items():
        cells = " | ".join(verdicts.get((number, platform), "") for platform in platforms)
        lines.append(f"| {number} | {name} | {cells} |")
    notes = [f"- {r.platform}, {r.case.number}: {r.verdict.note}" for r in results if r.verdict.note]
    return "\n".join([*lines, *(["", *notes] if notes else []), ""])


def write_json(results: Sequence[CaseResult], bot: str, date: str) -> str:
    """Return the results as JSON.

    Args:
        bot: the name or the command of the bot.
        date: the date of the run, in ISO format.
    """
    cases = [
        {
            "platform": result.platform,
            "case": result.case.number,
            "name": result.case.name,
            "verdict": result.verdict.outcome,
            "seconds": result.verdict.seconds,
            "note": result.verdict.note,
            "runs": [str(run) for run in result.runs],
        }
        for result in results
    ]
    return json.dumps({"bot": bot, "date": date, "results": cases}, indent=2) + "\n"


def write_junit(results: Sequence[CaseResult]) -> str:
    """Return the results as JUnit XML: `lost`, `doubled` and `cut` are failures, `n/a` is skipped."""
    root = ElementTree.Element("testsuites")
    for platform in dict.fromkeys(result.platform for result in results):
        own = [result for result in results if result.platform == platform]
        suite = ElementTree.SubElement(root, "testsuite", name=f"chatrig conform {platform}", tests=str(len(own)))
        suite.set("failures", str(sum(result.verdict.outcome in FAILURES for result in own)))
        suite.set("skipped", str(sum(result.verdict.outcome is Outcome.NOT_APPLICABLE for result in own)))
        for result in own:
            name = f"{result.case.number} {result.case.name}"
            case = ElementTree.SubElement(suite, "testcase", classname=f"chatrig.{platform}", name=name)
            message = f"{result.verdict}: {result.verdict.note}" if result.verdict.note else str(result.verdict)
            if result.verdict.outcome in FAILURES:
                failure = ElementTree.SubElement(case, "failure", message=message)
                failure.text = _remove_control_characters("\n\n".join(result.transcripts))
            elif result.verdict.outcome is Outcome.NOT_APPLICABLE:
                ElementTree.SubElement(case, "skipped", message=message)
            else:
                ElementTree.SubElement(case, "system-out").text = message
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _remove_control_characters(text: str) -> str:
    """Return a text without the characters that XML does not have."""
    return "".join(character for character in text if character.isprintable() or character in "\n\t")
