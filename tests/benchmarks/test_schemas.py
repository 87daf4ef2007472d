import pytest

from benchmarks.schemas import create_arguments, create_bomb, main, resolve_fields
from core.models.tool_calls import check_json
from core.tools.json_schema import SchemaResolver


def test_both_resolvers_find_the_same_keywords() -> None:
    schema = create_bomb(2)
    schema["d"]["allOf"][0]["title"] = "a title"
    resolver = SchemaResolver(schema)
    merged = [resolver.merge(field).keywords for field in schema["properties"].values()]
    assert merged == resolve_fields(schema)


def test_the_largest_arguments_are_within_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    for value in create_arguments().values():
        check_json({"a": value, "pin": "1234"})
    main(2)
    assert "one text" in capsys.readouterr().out
