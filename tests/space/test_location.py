from pathlib import Path

import pytest

from autosched.space import location


def test_a_checkout_is_found() -> None:
    folder = location.search_spaces_folder()
    assert (folder / "cpu" / "matmul.toml").is_file()


def test_an_installed_package_comes_before_a_foreign_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "autosched"
    installed = package / "_data" / "search_spaces"
    installed.mkdir(parents=True)
    (tmp_path / "site" / "search_spaces").mkdir()  # of somebody else: no setup.cfg beside it
    monkeypatch.setattr(location, "files", lambda name: package)
    assert location.find_data_folder("search_spaces") == installed
    (tmp_path / "site" / "setup.cfg").touch()
    assert location.find_data_folder("search_spaces") == tmp_path / "site" / "search_spaces"


def test_the_environments_share_folder_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPHUB_LOCATION")
    monkeypatch.setattr(location, "files", lambda name: tmp_path / "autosched")
    monkeypatch.setattr(location.sys, "prefix", str(tmp_path / "prefix"))
    assert location.tuning_logs_folder() is None
    with pytest.raises(location.SpaceError, match="install autosched again"):
        location.search_spaces_folder()
    shared = tmp_path / "prefix" / "share" / "autosched" / "tuning_logs"
    shared.mkdir(parents=True)
    assert location.tuning_logs_folder() == shared


def test_tvm_s_variable_turns_shipped_logs_off_or_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")
    assert location.tuning_logs_folder() is None
    monkeypatch.setenv("TOPHUB_LOCATION", str(tmp_path))
    assert location.tuning_logs_folder() == tmp_path
    monkeypatch.setenv("TOPHUB_LOCATION", "https://example.org/tophub")  # TVM's own, which ours is not
    assert location.tuning_logs_folder() == location.find_data_folder("tuning_logs")
