import logging

from autosched import project
from autosched.project import find_project_file
from autosched.records.places import project_database
from tests.other_user import give_to_another


def test_the_nearest_file_above_is_found(tmp_path):
    (tmp_path / "autosched.toml").write_text("")
    deep = tmp_path / "one" / "two"
    deep.mkdir(parents=True)
    assert find_project_file(deep) == tmp_path / "autosched.toml"


def test_the_file_of_another_user_is_not_followed(tmp_path, monkeypatch, caplog):
    project._warn_of_stranger.cache_clear()
    (tmp_path / "autosched.toml").write_text('[records]\ndb = "postgresql://somewhere/else"\n')
    deep = tmp_path / "one" / "two"
    deep.mkdir(parents=True)
    give_to_another(tmp_path / "autosched.toml", monkeypatch)
    with caplog.at_level(logging.WARNING, "autosched"):
        assert find_project_file(deep) is None
        assert project_database(deep) is None
    assert [("is not followed" in record.message) for record in caplog.records] == [True]


def test_a_file_that_everybody_can_write_is_not_followed(tmp_path):
    (tmp_path / "autosched.toml").write_text("")
    (tmp_path / "autosched.toml").chmod(0o666)
    assert find_project_file(tmp_path) is None
