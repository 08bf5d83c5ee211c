"""expand_conv1d."""

from autosched.relax import op
from autosched.relax.transform import ExpandConv1d
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()


def test_one_dimension_becomes_a_row():
    before = graph(
        {"x": (2, 6, 17)},
        lambda bb, x: op.nn.relu(op.nn.conv1d(x, W(9, 2, 3), strides=2, padding=(1, 3), dilation=2, groups=3)),
    )
    after = ExpandConv1d()(before)
    assert_same_results(before, after)
    assert calls(after) == ["expand_dims", "expand_dims", "nn.conv2d", "squeeze", "nn.relu"]


def test_other_convolutions_stay():
    module = graph({"x": (1, 3, 5, 5)}, lambda bb, x: op.nn.conv2d(x, W(4, 3, 3, 3)))
    assert ExpandConv1d()(module) is module
