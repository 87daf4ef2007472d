from pathlib import Path

from benchmarks.sessions import (
    APP,
    USER,
    SessionContender,
    create_adk_database,
    create_adk_memory,
    create_adk_sqlite,
    create_parley,
    get_session_id,
    measure,
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
