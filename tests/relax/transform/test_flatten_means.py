from autosched.relax import op
from autosched.relax.transform import FlattenMeans
from tests.relax.transform.graphs import assert_same_results, calls, graph

IMAGE = {"x": (2, 6, 5, 7)}


def _names(build, shapes=IMAGE):
    module = graph(shapes, build)
    result = FlattenMeans()(module)
    assert_same_results(module, result)
    return calls(result)


def test_means_of_images():
    assert _names(lambda bb, x: op.nn.adaptive_avg_pool2d(x, output_size=1)) == ["reshape", "mean", "reshape"]
    assert _names(lambda bb, x: op.mean(x, axis=(2, 3))) == ["reshape", "mean"]
    assert _names(lambda bb, x: op.max(x, axis=(-1, 1, 2), keepdims=True)) == ["reshape", "max", "reshape"]
    assert _names(lambda bb, x: op.variance(x, axis=(2, 3))) == ["reshape", "variance"]


def test_others_stay():
    assert _names(lambda bb, x: op.nn.adaptive_avg_pool2d(x, output_size=2)) == ["nn.adaptive_avg_pool2d"]
    assert _names(lambda bb, x: op.mean(x, axis=(1, 2))) == ["mean"]
    assert _names(lambda bb, x: op.mean(x, axis=3)) == ["mean"]
    assert _names(lambda bb, x: op.sum(x, axis=None)) == ["sum"]
