import io
import json
import os
import pickle
import zipfile

import pytest

torch = pytest.importorskip("torch")

from autosched.errors import ImportModelError  # noqa: E402
from autosched.frontend.torch import load_program_file  # noqa: E402
from autosched.frontend.torch.archive import is_plain_expression  # noqa: E402
from autosched.frontend.torch.graph import make_emitter, run_converter  # noqa: E402


class _Evil:
    """A pickle that makes a folder when it is read."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


class _Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("pt2") / "model.pt2"
    dims = {"x": {0: torch.export.Dim("b", min=2, max=64)}}
    torch.export.save(torch.export.export(_Net(), (torch.zeros(3, 4),), dynamic_shapes=dims), path)
    return path


def _saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _rewritten(source, path, changes):
    """A copy of an archive with records replaced: name -> function of the old bytes; new names are added."""
    changes = dict(changes)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        root = old.namelist()[0].split("/")[0]
        for name in old.namelist():
            data = old.read(name)
            change = changes.pop(name.removeprefix(f"{root}/"), None)
            new.writestr(name, data if change is None else change(data))
        for name, change in changes.items():
            new.writestr(f"{root}/{name}", change(b""))
    return path


def _edited(edit):
    def change(data):
        document = json.loads(data)
        edit(document)
        return json.dumps(document).encode()

    return change


def _set_expression(text):
    def edit(document):
        document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0]["as_expr"]["expr_str"] = text

    return _edited(edit)


def _set_target(text):
    def edit(document):
        document["graph_module"]["graph"]["nodes"][1]["target"] = text

    return _edited(edit)


def _set_spec(document):
    signature = document["graph_module"]["module_call_graph"][0]["signature"]
    context = {"default_factory_module": "antigravity", "default_factory_name": "x", "dict_context": []}
    spec = {"type": "collections.defaultdict", "context": json.dumps(context), "children_spec": []}
    signature["in_spec"] = json.dumps([1, spec])


def _pickle_first_weight(document):
    next(iter(document["config"].values()))["use_pickle"] = True


def _opaque_constant(document):
    document["config"]["c"] = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}


def test_an_archive_of_tensors_is_read(whole, tmp_path):
    assert "main" in [gv.name for gv, _ in load_program_file(whole).functions_items()]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (lambda evil: {"data/sample_inputs/model.pt": lambda _: _saved(evil)}, "a pickle of more than tensors"),
        (lambda evil: {"data/weights/model.pt": lambda _: _saved(evil)}, "a pickle of more than tensors"),
        (lambda evil: {"data/constants/model.pt": lambda _: _saved(evil)}, "a pickle of more than tensors"),
        (
            lambda evil: {
                "data/weights/model_weights_config.json": _edited(_pickle_first_weight),
                "data/weights/weight_0": lambda _: _saved(evil),
            },
            "a pickled tensor",
        ),
        (
            lambda evil: {
                "data/constants/model_constants_config.json": _edited(_opaque_constant),
                "data/constants/opaque_obj_0": lambda _: pickle.dumps(evil),
            },
            "a pickled",
        ),
        (
            lambda evil: {"models/model.json": _set_expression(f"__import__('os').mkdir({str(evil.folder)!r})")},
            "an expression that is no arithmetic",
        ),
        (lambda evil: {"models/model.json": _set_target("torch.os.mkdir")}, "a call of 'torch.os.mkdir'"),
        (lambda evil: {"models/model.json": _set_target("torch.ops.load_library")}, "a call of"),
        (lambda evil: {"models/model.json": _set_target("_operator.methodcaller")}, "a call of"),
        (lambda evil: {"models/model.json": _edited(_set_spec)}, "the name of a module to import"),
        (lambda evil: {"data/aotinductor/model/code.so": lambda _: b"\x7fELF"}, "native code"),
    ],
)
def test_what_would_run_is_refused_and_the_switch_named(whole, tmp_path, changes, problem):
    evil = _Evil(tmp_path / "was run")
    path = _rewritten(whole, tmp_path / "evil.pt2", changes(evil))
    with pytest.raises(ImportModelError, match=problem) as caught:
        load_program_file(path)
    assert "AUTOSCHED_TRUST_PICKLE" in str(caught.value.hint)
    assert not evil.folder.exists()


def test_guards_are_not_run(whole, tmp_path):
    folder = tmp_path / "was run"
    guard = _edited(lambda document: document.update(guards_code=[f"__import__('os').mkdir({str(folder)!r})"]))
    load_program_file(_rewritten(whole, tmp_path / "evil.pt2", {"models/model.json": guard}))
    assert not folder.exists()


def test_an_archive_of_the_old_form_is_looked_at_too(tmp_path):
    folder = tmp_path / "was run"
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as archive:
        archive.writestr("version", "8.1")
        archive.writestr("serialized_exported_program.json", "{}")
        archive.writestr("serialized_constants.pt", _saved(_Evil(folder)))
        archive.writestr("serialized_state_dict.pt", _saved({}))
        archive.writestr("serialized_example_inputs.pt", _saved(_Evil(folder)))
    with pytest.raises(ImportModelError, match="a pickle of more than tensors"):
        load_program_file(tmp_path / "old.pt2")
    assert not folder.exists()


def test_an_archive_of_something_else_is_refused_in_one_line(tmp_path, caplog):
    evil = _Evil(tmp_path / "was run")
    (tmp_path / "saved.pt2").write_bytes(_saved(evil))
    with pytest.raises(ImportModelError, match="cannot be read") as caught:
        load_program_file(tmp_path / "saved.pt2")
    assert "\n" not in str(caught.value)
    assert not caplog.records  # PyTorch logs a traceback
    assert not evil.folder.exists()


def test_who_trusts_an_archive_gets_it_read(whole, tmp_path, monkeypatch):
    evil = _Evil(tmp_path / "was run")
    changes = {
        "data/weights/model_weights_config.json": _edited(_pickle_first_weight),
        "data/weights/weight_0": lambda _: _saved(evil),
    }
    path = _rewritten(whole, tmp_path / "evil.pt2", changes)
    monkeypatch.setenv("AUTOSCHED_TRUST_PICKLE", "1")
    with pytest.raises(ImportModelError, match="cannot be read"):  # what was unpickled is no tensor
        load_program_file(path)
    assert evil.folder.exists()
    load_program_file(whole, trust_pickle=True)


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s77', positive=True, integer=True)",
        "Mul(Integer(2), Symbol('s77', positive=True, integer=True))",
        "FloorDiv(Add(Symbol('u0'), Integer(-1)), Integer(2))",
        "2*s0 + Max(1, s1)//2",
        "Eq(s0, 3) & (s1 < 4)",
    ],
)
def test_arithmetic_over_symbols_is_plain(text):
    assert is_plain_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "exec('x')",
        "s0.real",
        "[x for x in (1,)]",
        "(lambda: 0)()",
        "Symbol('os.system')",
        "open('/etc/passwd')",
        "f'{s0}'",
        "x" * 3 + "(",
        "-" * 100_000 + "1",
        7,
    ],
)
def test_anything_else_is_not(text):
    assert not is_plain_expression(text)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("flatten", (3,)), ("conv2d", (1, 2, 3)), ("relu", ()), ("add", (1,)), ("truediv", (1, 0)), ("pow", (7, 1 << 62)),
     ("getitem", ((1, 2), 5))],
)  # fmt: skip
def test_arguments_that_no_exporter_writes(name: str, arguments: tuple[int, ...]) -> None:
    with pytest.raises(ImportModelError, match=f"{name}: .*not supported|{name}:"):
        run_converter(make_emitter(), name, arguments, {})


def test_a_part_of_several_archives_is_refused(whole, tmp_path):
    """What stands before the end of an archive of 64 bits says on how many disks it lies."""
    end = whole.read_bytes()[-22:]
    path = tmp_path / "part.pt2"
    path.write_bytes(b"PK\x06\x07" + bytes(12) + (7).to_bytes(4, "little") + end)
    with pytest.raises(ImportModelError, match="is no exported program"):
        load_program_file(path)
