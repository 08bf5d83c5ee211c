"""ONNX models that compute with their sizes: one build serves all, and says what sizes it cannot serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched.codegen import counters
from autosched.errors import IndexOutOfRangeError, ShapeError
from autosched.frontend.onnx import from_onnx
from autosched.runtime.dynamic import DynamicExecutable
from tests.frontend.onnx_models import make, node
from tests.spread import spread

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

FIRST, SECOND = {"zero": np.array(0), "first": np.array([0])}, {"one": np.array(1), "second": np.array([1])}
COUNTS = {**FIRST, **SECOND, "two": np.array([2]), "start": np.array([0])}


def once(
    nodes: Sequence[object], inputs: Mapping[str, tuple[int | str, ...]], weights: Mapping[str, np.ndarray],
    calls: Sequence[Mapping[str, tuple[int, ...]]], outputs: Sequence[str] = ("y",), opset: int = 17,
) -> DynamicExecutable:  # fmt: skip
    """The model built once, after it gave what ONNX's reference gives, without a compile, for shapes of inputs."""
    proto = make(nodes, inputs, outputs, weights, opset)
    built = autosched.build(proto)
    assert isinstance(built, DynamicExecutable)
    before, reference = counters.COMPILES.value, ReferenceEvaluator(proto)
    for shapes in calls:
        rng = np.random.default_rng(1)
        given = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
        found = built(**given)
        for one, wanted in zip(
            found if isinstance(found, tuple) else (found,), reference.run(None, given), strict=True
        ):
            assert one.numpy().dtype == wanted.dtype and one.numpy().shape == wanted.shape
            np.testing.assert_allclose(one.numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert counters.COMPILES.value == before
    return built


def length_of(source: str, axis: str, at: str) -> list[object]:
    """`length`, a scalar, and `length1`, a vector: the size of a dimension."""
    return [
        node("Shape", source, "shape"), node("Gather", f"shape {axis}", "length"),
        node("Unsqueeze", f"length {at}", "length1"),
    ]  # fmt: skip


def test_a_table_of_positions_is_cut_to_the_length(tmp_path: Path) -> None:
    table = np.arange(32 * 4, dtype=np.float32).reshape(1, 32, 4)
    nodes = [
        *length_of("x", "one", "first"), node("Slice", "table start length1 second", "p"), node("Add", "x p", "y"),
    ]  # fmt: skip
    sizes = [(1, 1), (2, 32), (3, 7)]
    built = once(nodes, {"x": ("b", "s", 4)}, {**COUNTS, "table": table}, [{"x": (b, s, 4)} for b, s in sizes])
    built.save(tmp_path / "m.asx")
    for model in (built, autosched.load(tmp_path / "m.asx")):
        with pytest.raises(ShapeError, match="'s' is 33, and the model is built for 1 to 32"):
            model(x=np.zeros((2, 33, 4), "f4"))


def test_a_cut_that_two_sizes_decide_is_asked_for(tmp_path: Path) -> None:
    table = np.arange(32, dtype=np.float32)
    nodes = [
        node("Shape", "x", "sx"), node("Shape", "h", "sh"), node("Add", "sx sh", "end"),
        node("Slice", "table sh end", "p"), node("Add", "x p", "y"),
    ]  # fmt: skip
    calls = [{"x": (3,), "h": (5,)}, {"x": (1,), "h": (31,)}, {"x": (30,), "h": (2,)}]
    built = once(nodes, {"x": ("n",), "h": ("past",)}, {**COUNTS, "table": table}, calls)
    built.save(tmp_path / "m.asx")
    for model in (built, autosched.load(tmp_path / "m.asx")):
        with pytest.raises(ShapeError, match="'n_p' needs .*gets n 2, past 31"):
            model(x=np.zeros(2, "f4"), h=np.zeros(31, "f4"))


def test_masks_are_made_of_sizes() -> None:
    nodes = [
        *length_of("x", "one", "first"), node("Range", "zero length one", "r"), node("Unsqueeze", "r second", "rows"),
        node("LessOrEqual", "r rows", "seen"), node("Concat", "length1 length1", "square", axis=0),
        node("ConstantOfShape", "square", "low"), node("Expand", "none length1", "none1"),
        node("Where", "seen low none1", "mask"), node("Add", "x mask", "masked"), node("Softmax", "masked", "y"),
    ]  # fmt: skip
    weights = {**COUNTS, "none": np.full((1, 1), -np.inf, "f4")}
    once(nodes, {"x": ("b", "s", "s")}, weights, [{"x": (2, 3, 3)}, {"x": (1, 1, 1)}, {"x": (1, 40, 40)}])


def test_sizes_are_numbers_to_compute_with() -> None:
    nodes = [
        *length_of("x", "one", "first"), node("Cast", "length", "n", to=1), node("Div", "x n", "mean"),
        node("Sqrt", "n", "root"), node("Mul", "mean root", "y"), node("Range", "one length one", "r"),
        node("Cast", "r", "rf", to=1), node("ReduceSum", "rf", "total", keepdims=0),
        node("Range", "none n unit", "steps"), node("Range", "half n unit", "halves"),
        node("Add", "steps halves", "sum"), node("Neg", "length", "below"), node("Range", "length below below1", "d"),
        node("Cast", "d", "distances", to=1),
    ]  # fmt: skip
    calls = [{"x": (b, s)} for b, s in ((1, 2), (5, 3), (2, 50))]
    weights = {**COUNTS, "none": np.array(0, "f4"), "half": np.array(0.5, "f4"), "unit": np.array(1, "f4")}
    weights["below1"] = np.array(-1)
    once(nodes, {"x": ("b", "s")}, weights, calls, outputs=("y", "total", "sum", "distances"))


def test_tokens_in_front_of_those_of_an_image() -> None:
    """They are what is left of all without the image's, in whichever order its rows and columns are multiplied."""
    nodes = [
        node("Shape", "x", "shape"), node("Div", "shape two", "patches"), node("Gather", "patches first", "h"),
        node("Gather", "patches second", "w"), node("Mul", "h w", "many"), node("ConstantOfShape", "many", "image"),
        node("Concat", "token image", "all", axis=0), node("Shape", "all", "whole"), node("Mul", "w h", "area"),
        node("Sub", "whole area", "count"), node("Slice", "all start count", "y"),
    ]  # fmt: skip
    weights = {**COUNTS, "token": np.ones(1, "f4")}
    module = from_onnx(make(nodes, {"x": ("h", "w")}, ["y"], weights))
    assert module["main"].body.struct_info.static_shape == (1,)


def test_groups_of_channels_behind_a_window_without_padding() -> None:
    """Its result keeps its shape, although nothing says that the input is as long as the window."""
    weights = {"w": np.random.default_rng(0).standard_normal((2, 1, 10)).astype("f4"), "groups": np.array([0, 2, -1])}
    weights |= {"ones": np.ones(2, "f4"), "zeros": np.zeros(2, "f4")}
    nodes = [
        node("Conv", "x w", "c", strides=[5]), node("Shape", "c", "shape"), node("Reshape", "c groups", "g"),
        node("InstanceNormalization", "g ones zeros", "i"), node("Reshape", "i shape", "y"),
    ]  # fmt: skip
    once(nodes, {"x": ("b", 1, "s")}, weights, [{"x": (b, 1, s)} for b, s in ((1, 20), (2, 31), (2, 10 + 5 * 40))])


def test_images_are_padded_to_whole_windows() -> None:
    """By (4 - h % 4) % 4 zeros, then one in front, as many behind as the image has columns."""
    weights = {**COUNTS, "n4": np.array([4]), "none": np.array([0]), "unit": np.array([1])}
    nodes = [
        *length_of("x", "one", "first"), node("Mod", "length1 n4", "over"), node("Sub", "n4 over", "under"),
        node("Mod", "under n4", "more"), node("Concat", "none none none more", "pads", axis=0),
        node("Pad", "x pads", "p"), node("Concat", "none unit none length1", "wide", axis=0),
        node("Pad", "p wide", "y"),
    ]  # fmt: skip
    once(nodes, {"x": ("b", "s")}, weights, [{"x": (b, s)} for b, s in ((1, 1), (2, 4), (3, 7), (1, 10))], ("p", "y"))


def test_elements_of_a_sum_of_sizes_are_as_many_however_it_is_written() -> None:
    """A token in front of those of an image, whose width is what is left: as torch.onnx writes DINOv3's attention."""
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape first2", "h"), node("Gather", "shape first3", "w"),
        node("Reshape", "x flat", "tokens"), node("Concat", "token tokens", "all", axis=1), node("Mul", "w h", "wh"),
        node("Add", "wh one", "count"), node("Concat", "first count last", "wanted", axis=0),
        node("Reshape", "all line", "merged"), node("Reshape", "merged wanted", "again"),
        node("MatMul", "again m", "y"),
    ]  # fmt: skip
    weights = {
        **COUNTS,
        "m": np.ones((6, 2), "f4"),
        "first2": np.array([1]),
        "first3": np.array([2]),
        "one": np.array([1]),
    }
    weights |= {"flat": np.array([1, -1, 6]), "last": np.array([-1]), "token": np.ones((1, 1, 6), "f4")}
    weights |= {"first": np.array([1]), "line": np.array([1, -1])}
    once(nodes, {"x": (1, "h", "w", 6)}, weights, [{"x": (1, h, w, 6)} for h, w in ((1, 2), (3, 5), (8, 1))])


def test_sizes_that_are_divided_as_real_numbers() -> None:
    """As torch.onnx writes the padding of Encodec's convolutions, and sizes times a scale."""
    modes = ("constant", "edge", "reflect", "wrap")
    nodes = [
        *length_of("x", "one", "first"), node("Cast", "length", "n", to=1), node("Div", "n four", "parts"),
        node("Add", "parts unit", "parts1"), node("Ceil", "parts1", "up"), node("Cast", "up", "whole", to=7),
        node("Sub", "whole one", "count"), node("Mul", "count whole4", "wanted"), node("Sub", "wanted length", "more"),
        node("Unsqueeze", "more first", "more1"), node("Concat", "second more1 first first", "flat", axis=0),
        node("Reshape", "flat pairs", "rows"), node("Slice", "rows last all first last", "back"),
        node("Transpose", "back", "columns", perm=[1, 0]), node("Reshape", "columns last", "pads"),
        *(node("Pad", "x pads", mode, mode=mode) for mode in modes),
        node("Mul", "n half3", "scaled"), node("Floor", "scaled", "down"), node("Cast", "down", "so_many", to=7),
        node("Unsqueeze", "so_many first", "so_many1"), node("ConstantOfShape", "so_many1", "z"),
    ]  # fmt: skip
    numbers = {"four": np.array(4, "f4"), "unit": np.array(1, "f4"), "half3": np.array(1.5, "f4")}
    weights = {**COUNTS, **numbers, "whole4": np.array(4), "pairs": np.array([-1, 2]), "last": np.array([-1])}
    weights["all"] = np.array([-(2**63) + 1])
    calls = [{"x": (b, s)} for b, s in ((1, 4), (2, 5), (3, 31))]
    once(nodes, {"x": ("b", "s")}, weights, calls, outputs=(*modes, "z"), opset=19)


def test_sizes_less_than_numbers_are_divided_towards_zero() -> None:
    rules = {"Div": lambda n, by: int(n / by), "Mod": lambda n, by: n % by}
    weights = {**COUNTS, **{f"n{i}": np.array(i) for i in (2, 4, 11)}}
    outputs = [f"{rule}{less}{by}" for rule in rules for less, by in ((2, 4), (11, 4))]
    nodes = [
        *length_of("x", "zero", "first"), node("Sub", "length n2", "l2"), node("Sub", "length n11", "l11"),
        *(node(o[:3], f"l{o[3:-1]} n4", f"{o}_") for o in outputs), *(node("Cast", f"{o}_", o, to=1) for o in outputs),
    ]  # fmt: skip
    built = autosched.build(make(nodes, {"x": ("n",)}, outputs, weights))
    assert isinstance(built, DynamicExecutable)
    for n in (1, 2, 6, 7, 11, 12, 30):
        wanted = [rules[o[:3]](n - int(o[3:-1]), 4) for o in outputs]
        assert [float(y.numpy()) for y in built(np.zeros(n, "f4"))] == wanted


def test_equal_code_over_other_sizes_is_code_of_its_own() -> None:
    nodes: list[object] = []
    for name in ("x", "z"):
        nodes += [
            node("Shape", name, f"s{name}"), node("Squeeze", f"s{name}", f"n{name}"),
            node("Range", f"zero n{name} one", f"r{name}"), node("Cast", f"r{name}", f"f{name}", to=1),
            node("ReduceSum", f"f{name}", f"y{name}", keepdims=0),
        ]  # fmt: skip
    calls = [{"x": (3,), "z": (9,)}, {"x": (20,), "z": (4,)}]
    once(nodes, {"x": ("n",), "z": ("m",)}, COUNTS, calls, outputs=("yx", "yz"))


def test_equal_code_over_other_sums_is_shared() -> None:
    nodes = [
        node("Concat", "p x", "a", axis=1), node("Concat", "q x", "c", axis=1), node("Softmax", "a", "sa", axis=0),
        node("Softmax", "c", "sc", axis=0),
    ]  # fmt: skip
    inputs = {"x": ("b", "s"), "p": ("b", "m"), "q": ("b", "n")}
    calls = [{"x": (2, 3), "p": (2, 5), "q": (2, 1)}, {"x": (1, 1), "p": (1, 1), "q": (1, 30)}]
    once(nodes, inputs, {}, calls, outputs=("sa", "sc"))


def test_the_last_elements_of_an_open_dimension() -> None:
    weights = {**COUNTS, "from": np.array([-2]), "end": np.array([2**63 - 1]), "few": np.array([3])}
    nodes = [node("Slice", "x from end second", "tail"), node("Slice", "x start few second", "head")]
    calls = [{"x": (2, 1)}, {"x": (1, 2)}, {"x": (3, 9)}]
    once(nodes, {"x": ("b", "s")}, weights, calls, outputs=("tail", "head"))


def test_nothing_has_fewer_than_one_element() -> None:
    nodes = [
        *length_of("x", "one", "first"), node("Sub", "length1 second", "less"), node("ConstantOfShape", "less", "z"),
        node("ReduceSum", "z", "y", keepdims=0),
    ]  # fmt: skip
    built = once(nodes, {"x": ("b", "s")}, COUNTS, [{"x": (1, 2)}, {"x": (3, 9)}])
    with pytest.raises(ShapeError, match="'s' is 1, and the model is built for at least 2"):
        built(x=np.zeros((2, 1), "f4"))


def test_dimensions_that_follow_from_others() -> None:
    nodes = [node("Concat", "past x", "both", axis=1), node("Add", "both mask", "y")]
    inputs = {"x": ("b", "s"), "past": ("b", "p"), "mask": ("b", "p + s")}
    calls = [{"x": (2, 3), "past": (2, 5), "mask": (2, 8)}, {"x": (1, 1), "past": (1, 30), "mask": (1, 31)}]
    built = once(nodes, inputs, {}, calls)
    with pytest.raises(ShapeError, match="input 'mask'"):
        built(x=np.zeros((2, 3), "f4"), past=np.zeros((2, 5), "f4"), mask=np.zeros((2, 9), "f4"))


def test_open_sizes_that_meet_have_to_be_equal() -> None:
    nodes = [node("Concat", "past x", "both", axis=1), node("Add", "both mask", "a"), node("MatMul", "a w", "y")]
    inputs = {"x": ("b", "s"), "past": ("b", "p"), "mask": ("b", "total"), "w": ("total2", 3)}
    calls = [{"x": (2, 3), "past": (2, 5), "mask": (2, 8), "w": (8, 3)}]
    built = once(nodes, inputs, {}, calls)
    given = {"x": np.zeros((2, 3), "f4"), "past": np.zeros((2, 5), "f4")}
    with pytest.raises(ShapeError, match=r"'n_a' needs total == p\+s, and gets p 5, s 3, total 9"):
        built(**given, mask=np.zeros((2, 9), "f4"), w=np.zeros((8, 3), "f4"))
    with pytest.raises(ShapeError, match=r"'n_y' needs .*total2 9"):
        built(**given, mask=np.zeros((2, 8), "f4"), w=np.zeros((9, 3), "f4"))


def test_sizes_with_names_of_their_own_may_be_one() -> None:
    nodes = [node("Add", "x z", "a"), node("Mul", "a x", "y")]
    shapes = [((3, 4), (3, 4)), ((3, 4), (1, 4)), ((1, 4), (5, 4)), ((3, 1), (1, 4)), ((1, 1), (1, 1))]
    calls = [{"x": x, "z": z} for x, z in shapes]
    built = once(nodes, {"x": ("n", "c"), "z": ("m", "d")}, {}, calls)
    with pytest.raises(ShapeError, match=r"'n_a' needs .*, and gets m 2, n 3"):
        built(x=np.zeros((3, 4), "f4"), z=np.zeros((2, 4), "f4"))
    once([node("Add", "x z", "y")], {"x": (2, 4), "z": ("m", 4)}, {}, [{"x": (2, 4), "z": (m, 4)} for m in (1, 2)])


def test_a_mask_expanded_to_the_length_of_what_is_kept() -> None:
    """A square of the sequence is as wide as past and sequence where nothing is kept, or the sequence is one."""
    sizes = [
        node("Shape", "x", "xs"), node("Shape", "past", "ps"), node("Gather", "xs second", "s"),
        node("Gather", "ps second", "p"), node("Add", "s p", "t"), node("Concat", "s t", "st", axis=0),
        node("Concat", "s s", "ss", axis=0), node("ConstantOfShape", "ss", "mask"), node("Expand", "mask st", "wide"),
        node("Concat", "past x", "both", axis=1), node("Add", "wide both", "y"),
    ]  # fmt: skip
    calls = [{"x": (1, s), "past": (1, p)} for s, p in ((5, 0), (1, 0), (1, 7))]
    built = once(sizes, {"x": (1, "s"), "past": (1, "p")}, SECOND, calls)
    with pytest.raises(ShapeError):
        built(x=np.zeros((1, 3), "f4"), past=np.zeros((1, 2), "f4"))


def test_a_size_that_can_only_be_one_number_is_no_symbol() -> None:
    nodes = [node("Concat", "past x", "both", axis=1), node("MatMul", "both w", "y")]
    weights = {"w": np.ones((4, 3), "f4"), "x": np.ones((2, 3, 4), "f4")}
    built = once(nodes, {"past": (2, "p", "head")}, weights, [{"past": (2, p, 4)} for p in (1, 5)])
    assert [size.name for size in built.form.sizes] == ["p"]
    with pytest.raises(ShapeError):
        built(past=np.zeros((2, 1, 3), "f4"))


def test_positions_in_an_open_dimension() -> None:
    nodes = [
        node("Cast", "at", "i", to=7), node("Gather", "x i", "rows", axis=0), node("Unsqueeze", "i second", "i1"),
        node("GatherND", "x i1", "same"), node("Add", "rows same", "y"),
    ]  # fmt: skip
    proto = make(nodes, {"x": ("n", 3), "at": ("k",)}, ["y"], COUNTS)
    built, x = autosched.build(proto), np.arange(15, dtype="f4").reshape(5, 3)
    assert isinstance(built, DynamicExecutable)
    for at in ([4], [0, 1, 2, 3, 4, -1], list(range(5)) * 10):
        np.testing.assert_array_equal(built(x=x, at=np.array(at, "f4")).numpy(), 2 * x[at])
    for wrong in (5, -6):
        with pytest.raises(IndexOutOfRangeError, match=f"of size n.*: index {wrong} is out of range"):
            built(x=x, at=np.array([0, wrong], "f4"))


def test_the_best_of_an_open_dimension() -> None:
    """At most 5 of them, as detectors choose at most 300 places: fewer where there are fewer."""
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0), node("Clip", "n one five", "k"),
        node("Unsqueeze", "k zeros", "k1"), node("TopK", "x k1", "y i", axis=0, largest=0), node("Gather", "x i", "z"),
    ]  # fmt: skip
    counts = {"zero": np.array(0), "one": np.array(1), "five": np.array(5), "zeros": np.array([0])}
    proto = make(nodes, {"x": ("n",)}, ["y", "i", "z"], counts)
    built = autosched.build(proto)
    assert isinstance(built, DynamicExecutable)
    for n in (1, 4, 5, 6, 70):
        x = np.random.default_rng(n).permutation(n).astype("f4")
        y, i, z = (r.numpy() for r in built(x))
        np.testing.assert_array_equal(y, np.sort(x)[:5])
        np.testing.assert_array_equal(i, np.argsort(x)[:5])
        np.testing.assert_array_equal(z, y)


ROWS, IMAGES = ("n", 6), ("n", 4, 6, 6)
OPERATORS = {
    "Celu": ("x", ROWS, {}), "GroupNormalization": ("x two_ones two_ones", IMAGES, {"num_groups": 2}),
    "TopK": ("x k", ROWS, {"axis": 1}), "ArgMax": ("x", ROWS, {"axis": 0}), "ReduceMean": ("x first", ROWS, {}),
    "ReduceMax": ("x", ROWS, {}), "ConvTranspose": ("x kernel", IMAGES, {"strides": [2, 2], "kernel_shape": [2, 2]}),
    "Einsum": ("x x", ROWS, {"equation": "ij,kj->ik"}), "Tile": ("x twice", ROWS, {}), "EyeLike": ("x", ROWS, {"k": 1}),
    "MeanVarianceNormalization": ("x", IMAGES, {}), "QuantizeLinear": ("x half", ROWS, {}), "Shape": ("x", ROWS, {}),
    "Size": ("x", ROWS, {}), "LSTM": ("x wx wh", (5, "n", 6), {"hidden_size": 4}), "CumSum": ("x zero", ROWS, {}),
}  # fmt: skip


@spread(2, "operator", OPERATORS)
def test_operators_over_an_open_dimension(operator: str) -> None:
    inputs, shape, attributes = OPERATORS[operator]
    rng = np.random.default_rng(0)
    weights = {
        **COUNTS, "two_ones": np.ones(2, "f4"), "k": np.array([3]), "twice": np.array([2, 1]),
        "kernel": rng.standard_normal((4, 3, 2, 2)).astype("f4"), "half": np.array(0.5, "f4"),
        "wx": rng.standard_normal((1, 16, 6)).astype("f4"), "wh": rng.standard_normal((1, 16, 4)).astype("f4"),
    }  # fmt: skip
    used = {name: weights[name] for name in inputs.split() if name in weights}
    proto = make([node(operator, inputs, "y", **attributes)], {"x": shape}, ["y"], used, opset=18)
    built, reference = autosched.build(proto), ReferenceEvaluator(proto)
    assert isinstance(built, DynamicExecutable)
    before = counters.COMPILES.value
    for n in (1, 3, 70):
        x = rng.standard_normal(tuple(n if d == "n" else d for d in shape)).astype("f4")
        found, wanted = built(x), reference.run(None, {"x": x})[0]
        assert found.numpy().dtype == wanted.dtype and found.numpy().shape == wanted.shape
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-4)
    assert counters.COMPILES.value == before


def test_images_of_any_batch_have_blocked_channels() -> None:
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((32, n, 3, 3)).astype("f4") for name, n in (("a", 3), ("b", 32))}
    nodes = [
        node("Conv", "x a", "p", pads=[1, 1, 1, 1]), node("Relu", "p", "q"), node("Conv", "q b", "r"),
        node("GlobalAveragePool", "r", "y"),
    ]  # fmt: skip
    built = once(nodes, {"x": ("n", 3, 12, 12)}, weights, [{"x": (n, 3, 12, 12)} for n in (1, 2, 9)])
    assert any(len(shape) == 5 for shape in built.form.shapes)
