"""The table of first builds: new processes, and what the second model of a family finds in the first one's cache."""

from benchmarks import first_build
from benchmarks.models import get_model
from benchmarks.tables import Settings


def test_a_second_model_is_built_with_the_cache_of_the_first(tmp_path, monkeypatch):
    mlp = lambda: get_model("mlp")  # noqa: E731
    found = []

    def fresh(code, environment, runs):
        found.append((code.split("load_model(")[1].split(")")[0], environment["AUTOSCHED_CACHE_DIR"]))
        return [float(len(found))]

    monkeypatch.setattr(first_build, "fresh", fresh)
    monkeypatch.setattr(first_build, "families", lambda: (first_build.Family("A", mlp, 4, "B", mlp),))
    table = first_build.first_build(Settings(tmp_path, 1, 0.0, 0, ()))
    assert table.rows == [("A", "2.00", "3.00", "4"), ("B after it", "5.00", "6.00", "1.5")]
    caches = [cache for _, cache in found]
    assert caches[:3] == caches[3:] and len(set(caches)) == 3
    assert [path for path, _ in found] == [
        repr(str(tmp_path / name)) for name in ["first.onnx"] * 3 + ["second.onnx"] * 3
    ]


def test_the_code_of_a_build_prints_its_seconds(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(get_model("mlp").SerializeToString())
    (seconds,) = first_build.fresh(
        first_build.BUILD.format(path=str(path)), {"AUTOSCHED_CACHE_DIR": str(tmp_path / "cache")}, runs=1
    )
    assert seconds > 0 and any((tmp_path / "cache").rglob("*"))
