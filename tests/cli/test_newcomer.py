"""A newcomer's mistakes: each is answered by one line that names the fix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from tests.cli.models import dense_file

MISTAKES = (
    ("tunee model.onnx", "did you mean 'tune'?"),
    ("model.onnx", "autosched tune model.onnx"),
    ("model.asx", "autosched run model.asx"),
    ("export model.onnx", "there are tune, build, run"),
    ("logs lst", "did you mean 'list'?"),
    ("rpc server", "did you mean 'serve'?"),
    ("tune", "--all tunes what autosched.toml names"),
    ("tune model.onx", "did you mean model.onnx?"),
    ("tune https://example.com/y.onnx", "download it first"),
    ("tune notes.txt", "models are .onnx"),
    ("tune folder", "give a file"),
    ("tune script.py", "name an object of it: script:name"),
    ("tune newcomer_kernels:missing", "it has"),
    ("tune newcomer_kernels:plain", "put @autosched.autotune"),
    ("tune newcomer_kernels:bare", "@bare.example"),
    ("tune newcomer_nowhere:f", "run it in the folder that holds newcomer_nowhere"),
    ("tune model.onnx --budget ten", "write 90s, 10m or 1h30m"),
    ("tune model.onnx --trials 0", "x>=1"),
    ("tune model.onnx --trial 3", "'--trials'"),
    ("tune model.onnx --strategy magic", "there are auto, random"),
    ("tune model.onnx --db folder", "give a new folder, an empty one, or a file such as tuned.db"),
    ("tune model.onnx --db notes.txt", "check the path, or choose another one with --db"),
    ("build model.onnx --target gpu", "did you mean cuda?"),
    ("build model.onnx -o model.onnx", "give another name"),
    ("build model.onnx -o nofolder/x.asx", "there is no folder"),
    ("build model.onnx --shapes 3x4", "write x:1x3x224x224"),
    ("build model.onnx --signature f8", "--shapes is for models"),
    ("build newcomer_kernels:bare", '--signature "float64[:], float64"'),
    ("run modle.asx", "no file modle.asx"),
    ("run model.onnx -i missing.npz", "no file missing.npz"),
    ("run model.onnx -i notes.npz", "it is no NumPy file"),
    ("run model.onnx -i named.npz", "the model has no input 'y'; it has 'x'"),
    ("run model.onnx -i shaped.npz", "the model takes [4, 16]"),
    ("run model.onnx -i double.npz", "the model takes float32; convert it when saving"),
    ("run model.onnx --input x", "write --input NAME=FILE.npy"),
    ("run model.onnx --input x=missing.npy", "no file missing.npy"),
    ("run model.onnx --check missing.npz", "no file missing.npz"),
    ("run cut.onnx", "it is truncated"),
    ("build model.onnx --locked none.lock", "`autosched logs lock MODEL` writes one"),
    ("build model.onnx --pin conv2d rows=4", "no kernel's workload holds 'conv2d'"),
    ("build model.onnx --mcpu zen99", "use one of x86-64"),
    ("build newcomer_kernels:function", "a Numba function of your own takes @autosched.autotune"),
    ("build newcomer_kernels:bare --signature float65", "'float65' is no list of types"),
    ("build newcomer_kernels:bare --inputs missing.npz", "no file missing.npz"),
    ("tune newcomer_kernels:raises", "the example of newcomer_kernels:raises raises ZeroDivisionError"),
    ("tune newcomer_kernels:short", "it takes x, y"),
    ("tune newcomer_kernels:short --inputs shaped.npz", "missing a required argument: 'y'"),
    ("tune model.onnx --spaces missing", "give one that holds cpu/NAME.toml"),
    ("tune model.onnx --tasks 99", "there are 0 to 0"),
    ("tune --all", "[tune] models = "),
    ("warm newcomer_kernels:bare", "logs explain and logs report take functions"),
    ("inspect model.onnx --graph model.png", "--graph model.svg"),
    ("inspect model.onnx --source", "name it with --kernel"),
    ("cache unpack missing.zip", "no file missing.zip"),
    ("bench model.onnx --baseline notes.txt", "holds no measurements"),
    ("bench model.onnx --sweep batch=1,8", "dynamic first dimension"),
    ("logs prune --db folder", "--keep N"),
    ("bench model.onnx --with onnxrt", "there are onnxruntime"),
    ("logs best --db none.db", "make one with `autosched tune`"),
    ("logs show --where speed=3 --db none.db", "fields: op, target"),
    ("logs diff a.db", "Missing argument 'B'"),
    ("inspect model.onnx --kernel nope", "there are fused_matmul_relu"),
    ("inspect model.onnx --kernel fused_matmul_relu --source --asm", "--source and --asm exclude each other"),
    ("help tune", "write autosched --help, or autosched COMMAND --help"),
    ("version", "write autosched --version"),
    ("TUNE model.onnx", "did you mean 'tune'?"),
    ("cache clear", "there are pack, show, unpack"),
    ("tune newcomer_kernels", "name an object of it: newcomer_kernels:name"),
    ("build newcomer_kernels.bare", "write newcomer_kernels:bare"),
    ("build newcomer_kernels.py::bare", "write newcomer_kernels.py:bare"),
    ("build model.pt", "torch.export.save("),
    ("build model.tflite", "write it as ONNX first"),
    ("build model.onnx.gz", "unpack it first"),
    ("build model.onnx cut.onnx", "build takes MODEL"),
    ("doctor model.onnx", "doctor takes options alone"),
    ("build model.onnx --pin rows=4", "'--pin' takes TASK CONFIG"),
    ("tune model.onnx --db", "'--db' takes FILE"),
    ("inspect model.onnx --graph", "'--graph' takes a path"),
    ("run model.onnx --input named.npz", "write -i named.npz"),
    ("logs best model.onnx --db none.db", "`autosched logs explain model.onnx`"),
    ("bench model.onnx --with onnxruntime openvino", "write --with onnxruntime,openvino"),
    ("tune model.onnx --remote localhost", "write host:port"),
    ("bench model.onnx --fail-if 5%", "give --baseline old.json"),
    ("spaces shwo", "did you mean 'show'?"),
    ("warm", "give files, or --standard"),
    ("rpc serve --host 0.0.0.0", "give certificates, or use 127.0.0.1"),
    ("tune model.onnx --min-shapes x:1x16", "--min-shapes and --max-shapes belong together"),
    ("logs list --since yesterday", "write 2h, 3d or 2026-01-31"),
    ("quantize model.onnx", "--data FILE.npz"),
)
KERNELS = """
import autosched, numba
plain = numba.njit(lambda x: x)
function = lambda x: x
@autosched.autotune({"b": [1, 2]})
@numba.njit
def bare(x, b=1):
    return x
@autosched.autotune({"b": [1, 2]}, example=lambda: 1 / 0)
@numba.njit
def raises(x, b=1):
    return x
@autosched.autotune({"b": [1, 2]}, example=(1.0,))
@numba.njit
def short(x, y, b=1):
    return x
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("newcomer")
    dense_file(found / "model.onnx")
    for name in ("notes.txt", "notes.npz"):
        (found / name).write_text("notes\n")
    (found / "cut.onnx").write_bytes((found / "model.onnx").read_bytes()[:50])
    for name in ("model.pt", "model.tflite", "model.onnx.gz"):
        (found / name).write_bytes(b"abc")
    np.savez(found / "named.npz", y=np.ones((4, 16), "float32"))
    np.savez(found / "shaped.npz", x=np.ones((16, 4), "float32"))
    np.savez(found / "double.npz", x=np.ones((4, 16)))
    (found / "script.py").write_text("x = 1\n")
    (found / "newcomer_kernels.py").write_text(KERNELS)
    (found / "folder").mkdir()
    (found / "folder" / "a.txt").write_text("mine")
    return found


@pytest.mark.parametrize(("words", "fix"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_one_line_names_the_fix(
    words: str, fix: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(words.split()) == 2
    said = capsys.readouterr()
    lines = [line for line in said.err.splitlines() if not line.startswith(("see 'autosched", "["))]
    assert len(lines) == 1 and lines[0].startswith("autosched: error: ") and fix in lines[0], said.err
    assert not said.out
