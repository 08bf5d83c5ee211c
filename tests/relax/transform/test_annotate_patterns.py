import pytest

from autosched.relax import op
from autosched.relax.op.call import is_call_tir
from autosched.relax.transform import AnnotateTIROpPattern, LegalizeOps
from tests.relax.transform.graphs import Weights, graph

W = Weights()
SHAPES = {"x": (2, 4, 6, 6)}
PATTERNS = {
    "relu": (0, lambda bb, x: op.nn.relu(x)),
    "add": (0, lambda bb, x: op.add(x, W(2, 4, 6, 6))),
    "add of a vector": (0, lambda bb, x: op.add(x, W(6))),
    "add of channels": (0, lambda bb, x: op.add(x, W(1, 4, 1, 1))),
    "transpose": (2, lambda bb, x: op.permute_dims(x, axes=(0, 1, 3, 2))),
    "concat": (2, lambda bb, x: op.concat([x, W(2, 4, 6, 6)], axis=0)),
    "pad": (2, lambda bb, x: op.nn.pad(x, pad_width=(0, 0, 0, 0, 1, 1, 1, 1))),
    "layout_transform": (2, lambda bb, x: op.layout_transform(x, "NCHW", "NCHW4c")),
    "sum": (3, lambda bb, x: op.sum(x, axis=-1)),
    "softmax": (3, lambda bb, x: op.nn.softmax(x)),
    "layer_norm": (3, lambda bb, x: op.nn.layer_norm(x, W(6), W(6))),
    "max_pool": (3, lambda bb, x: op.nn.max_pool2d(x, pool_size=2)),
    "lrn": (3, lambda bb, x: op.nn.lrn(x)),
    "conv2d": (4, lambda bb, x: op.nn.conv2d(x, W(4, 4, 3, 3), padding=1)),
    "depthwise": (4, lambda bb, x: op.nn.conv2d(x, W(4, 1, 3, 3), padding=1, groups=4)),
    "matmul": (4, lambda bb, x: op.matmul(x, W(6, 3))),
    "take": (8, lambda bb, x: op.take(x, op.astype(op.sum(x), "int64"), axis=0)),
    "argmax": (8, lambda bb, x: op.argmax(x, axis=1)),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name):
    expected, build = PATTERNS[name]
    module = AnnotateTIROpPattern()(LegalizeOps()(graph(SHAPES, build)))
    last = [b.value for b in module["main"].bindings() if is_call_tir(b.value)][-1]
    assert module[last.args[0]].attrs["op_pattern"] == expected


def test_a_given_pattern_stays():
    module = LegalizeOps()(graph(SHAPES, lambda bb, x: op.nn.relu(x)))
    module["relu"] = module["relu"].with_attr("op_pattern", 8)
    assert AnnotateTIROpPattern()(module)["relu"].attrs["op_pattern"] == 8
