"""What setup.cfg cannot say: the data folders at the top of the repository are installed inside the package."""

from setuptools import find_packages, setup

DATA_FOLDERS = {"autosched._data.search_spaces": "search_spaces", "autosched._data.tuning_logs": "tuning_logs"}

setup(packages=[*find_packages(include=["autosched", "autosched.*"]), *DATA_FOLDERS], package_dir=DATA_FOLDERS)
