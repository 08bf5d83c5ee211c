"""The session that README shows: SqueezeNet tuned, looked at and built; its output and the pictures, made anew.

    python -m examples.session
    python -m examples.session --budget 10m --readme --pictures docs/images

--readme puts the output into README.md; --pictures needs the packages of the extra `test` and a Chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.models import get_model

ROOT = Path(__file__).parents[1]
MOST_TASKS = 8  # lines of the table that README shows
STEPS = (
    "tune {model} --budget {budget}",
    "logs report --model {model} -o report.html",
    "build {model} -o squeezenet.asx",
)
# From the page: where each picture begins and ends.
PICTURES = {"report.png": ("title", "roof"), "report-task.png": ("task", "sources-part")}


def run(folder: Path, words: str) -> tuple[list[str], list[str]]:
    """Run a command in a folder; gives the lines of stdout and of stderr. The session ends where one fails."""
    command = [sys.executable, "-m", "autosched", *words.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"autosched {words}: {done.stderr}")
    return done.stdout.splitlines(), done.stderr.splitlines()


def shorten(out: list[str], said: list[str]) -> list[str]:
    """What is worth showing: the heaviest tasks, and what was said at the beginning and the end."""
    first = [line.split("] ", 1)[1] for line in said if re.match(r"\[.*\] .* tasks  budget", line)]
    last = [line.replace("; checked", "\nchecked") for line in said if not line.startswith("[")]
    if out and out[0].startswith("task "):
        rows = sorted(out[1:], key=lambda line: -float((re.search(r"(\d+) %", line) or ["", "0"])[1]))
        out = [out[0], *rows[:MOST_TASKS], *(["…"] if len(rows) > MOST_TASKS else [])]
    return [*first, *out, *last]


def transcript(folder: Path, budget: str, threads: int) -> str:
    """Run all steps; gives commands and output as text."""
    (folder / "squeezenet.onnx").write_bytes(get_model("squeezenet").SerializeToString())
    parts = []
    for step in STEPS:
        words = f"{step.format(model='squeezenet.onnx', budget=budget)} --threads {threads} --db tuned.db"
        parts.append("\n".join([f"$ autosched {words}", *shorten(*run(folder, words))]))
    return "\n\n".join(parts)


def take_pictures(page: Path, folder: Path) -> None:
    """Open a report and save the parts of PICTURES."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        options = ["--no-sandbox"]
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        tab = browser.new_page(viewport={"width": 1180, "height": 900}, color_scheme="light")
        tab.goto(page.absolute().as_uri())
        tab.wait_for_selector("html[data-ready=yes]", timeout=120_000)
        for name, (first, last) in PICTURES.items():
            top, bottom = (
                tab.evaluate("(id) => document.getElementById(id).getBoundingClientRect().top + scrollY", place)
                for place in (first, last)
            )
            clip = {"x": 0, "y": max(0, top - 20), "width": 1180, "height": bottom - top}
            tab.screenshot(path=folder / name, full_page=True, clip=clip)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.session", description=__doc__.splitlines()[0])
    parser.add_argument("--budget", default="3m", help="time for tuning (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the kernels (%(default)s)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "session")
    parser.add_argument("--readme", action="store_true", help="put the output into README.md")
    parser.add_argument("--pictures", type=Path, help="save pictures of the report in this folder")
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    text = transcript(args.folder, args.budget, args.threads)
    print(text)
    if args.readme:
        readme = ROOT / "README.md"
        block = f"```console\n{text}\n```"
        found = re.sub(
            r"```console\n\$ autosched tune squeezenet.*?\n```", lambda _: block, readme.read_text(), flags=re.DOTALL
        )
        readme.write_text(found)
    if args.pictures:
        take_pictures(args.folder / "report.html", args.pictures)


if __name__ == "__main__":
    main()
