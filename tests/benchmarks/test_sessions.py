from pathlib import Path

from benchmarks.sessions import (
    APP,
    USER,
    SessionContender,
    SessionFigures,
    compare_with_targets,
    create_adk_database,
    create_adk_memory,
    create_adk_sqlite,
    create_parley,
    get_session_id,
    measure,
    split_by_process,
    table,
)


async def test_directly_inserted_events_are_loaded_as_history(tmp_path: Path) -> None:
    contenders: list[SessionContender] = [
        await create_parley("SQLite", f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"),
        create_adk_sqlite(tmp_path / "adk.db"),
        create_adk_database("SQLite", f"sqlite+aiosqlite:///{tmp_path / 'adk-sqlalchemy.db'}"),
        create_adk_memory(),
    ]
    figures = await measure(contenders, [4, 6], max_turns=2)
    assert [len(timings) for timings in figures.values()] == [2] * 7
    for contender in contenders:
        session = await contender.service.get_session(app_name=APP, user_id=USER, session_id=get_session_id(6))
        assert session is not None
        written = [
            event.content.parts[0].text or "" for event in session.events if event.content and event.content.parts
        ]
        assert [text.split()[0] for text in written[:6]] == [str(number) for number in range(6)]
        assert len(written) == 6 + 2 * 3 * len(contender.configs)
        await contender.close()


def test_a_very_long_history_has_a_process_of_its_own() -> None:
    assert split_by_process([100, 2_000, 10_000, 100_000, 200_000]) == [[100, 2_000, 10_000], [100_000], [200_000]]
    assert split_by_process([100_000]) == [[100_000]]


def test_the_figures_are_compared_with_their_targets() -> None:
    figures = {
        "Parley, SQLite": [SessionFigures(2.0, 1.0), SessionFigures(2.2, 3.0)],
        "ADK SqliteSessionService": [SessionFigures(9.0, 4.0), SessionFigures(110.0, 90.0)],
        "ADK SqliteSessionService, 50 events": [SessionFigures(9.0, 4.0), SessionFigures(11.0, 4.0)],
        "ADK InMemorySessionService": [SessionFigures(1.0, 1.0), SessionFigures(2.0, 1.0)],
    }
    assert list(compare_with_targets(figures, [100, 2_000])) == [
        "Parley, SQLite, at 2,000 events, compared with the faster of ADK's durable services:",
        "  whole history: ADK takes 50.0 times as long (target: 12)",
        "  with 50 events: 5.0 times (target: 3)",
        "  compared with Parley at 100 events: 1.10 times (target: 1.3)",
        "  longest delay of the loop, at any length: 3.0 ms (target: 10)",
    ]
    assert not list(compare_with_targets(figures, [100, 200]))
    assert "110.0 (90.0)" in list(table(figures, [100, 2_000]))[2]
