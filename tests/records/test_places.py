from pathlib import Path

import pytest

from autosched.errors import RecordError
from autosched.records import database_to_write, default_places
from autosched.records.places import find_project_file, project_database, user_database


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOSCHED_DB", raising=False)


def test_project_file_is_found_from_below(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_project_file(below) is None
    (tmp_path / "autosched.toml").write_text("")
    place = project_database(below)
    assert place is not None and place.where == str(tmp_path / "autosched.db")
    (tmp_path / "autosched.toml").write_text('[records]\ndb = "tuned/r.db"\n')
    place = project_database(below)
    assert place is not None and place.where == str(tmp_path / "tuned" / "r.db")


@pytest.mark.parametrize("text", ["[records", "[records]\ndb = 3", "records = 1", '[records]\ndb = ""'])
def test_bad_project_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "autosched.toml").write_text(text)
    with pytest.raises(RecordError, match="autosched.toml"):
        project_database(tmp_path)


def test_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "autosched.toml").write_text("")
    assert [p.title for p in default_places(tmp_path)] == ["project database", "user database"]
    assert database_to_write(start=tmp_path).title == "project database"
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "env.db"))
    assert [p.title for p in default_places(tmp_path)] == ["AUTOSCHED_DB", "project database", "user database"]
    assert database_to_write(start=tmp_path).where == str(tmp_path / "env.db")
    assert database_to_write("given.db", tmp_path).where == "given.db"
    user = user_database()
    assert user is not None and user.where.endswith("autosched.db")


def test_a_user_without_a_home_has_to_say_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.setattr(platformdirs, "user_data_path", lambda name: Path("~/.local/share") / name)
    assert default_places(tmp_path) == ()
    with pytest.raises(RecordError, match="--db"):
        database_to_write(start=tmp_path)
