import os
from pathlib import Path

import pytest

from autosched.trust import is_own_file, why_untrusted
from tests.other_user import give_to_another


@pytest.fixture
def deep(tmp_path):
    folder = tmp_path / "one" / "two"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "file").write_text("")
    return folder


def test_what_only_the_user_can_write_is_trusted(deep):
    assert why_untrusted(deep / "file") == ""
    assert why_untrusted(deep / "not there yet" / "file") == ""
    assert why_untrusted("/") == ""


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o702])
@pytest.mark.parametrize("place", ["", "..", "file"])
def test_whatever_others_can_write_is_named(deep, mode, place):
    changed = (deep / place).resolve()
    changed.chmod(mode)
    assert why_untrusted(deep / "file") == f"{changed} can be written by others"


@pytest.mark.parametrize("place", ["", "..", "file"])
def test_whatever_another_user_owns_is_named(deep, place, monkeypatch):
    give_to_another((deep / place).resolve(), monkeypatch)
    assert "belongs to user" in why_untrusted(deep / "file")


def test_a_sticky_folder_is_fine_above_one_of_the_users_own_and_not_as_the_last(deep):
    deep.parent.chmod(0o1777)
    assert why_untrusted(deep / "file") == ""
    assert why_untrusted(deep.parent) == f"{deep.parent} can be written by others"


def test_links_are_followed_and_what_they_lead_through_is_looked_at(deep, tmp_path):
    inner = tmp_path / "elsewhere" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "link").symlink_to(deep)
    (tmp_path / "relative").symlink_to(Path("elsewhere") / ".." / "link")
    assert why_untrusted(tmp_path / "relative" / "file") == ""
    deep.parent.chmod(0o770)
    assert why_untrusted(tmp_path / "relative" / "file") == f"{deep.parent} can be written by others"
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert "too many symbolic links" in why_untrusted(tmp_path / "circle" / "file")


def test_a_link_that_another_user_made_is_not_followed(deep, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(deep)
    give_to_another(tmp_path / "link", monkeypatch)
    assert "belongs to user" in why_untrusted(tmp_path / "link" / "file")


def test_a_relative_path_is_one_from_the_current_folder(deep, monkeypatch):
    monkeypatch.chdir(deep)
    assert why_untrusted("file") == ""
    os.chmod(deep, 0o777)
    assert why_untrusted("file") == f"{deep} can be written by others"


def test_a_file_of_ones_own_may_be_written_by_a_group_and_not_by_all(deep):
    file = deep / "file"
    file.chmod(0o664)
    assert is_own_file(file)
    file.chmod(0o666)
    assert not is_own_file(file)
    assert not is_own_file(deep / "none")


def test_a_link_of_another_user_to_a_file_of_ones_own_is_not_ones_own(deep, monkeypatch):
    (deep / "link").symlink_to("file")
    assert is_own_file(deep / "link")
    give_to_another(deep / "link", monkeypatch)
    assert not is_own_file(deep / "link")
