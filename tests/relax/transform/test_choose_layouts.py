import numpy as np
import pytest

from autosched import relax
from autosched.ir import IRModule
from autosched.relax import op
from autosched.relax.transform import ChooseLayouts, FoldConstant
from autosched.tir import Var
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph, small_network

W = Weights()


def _blocked(module: IRModule, block: int = 8) -> IRModule:
    result = ChooseLayouts(block)(module)
    assert_same_results(module, result)
    return result


def _names(shapes, build, block=8) -> list[str]:
    return calls(_blocked(graph(shapes, build), block))


def _layouts(module: IRModule) -> list[tuple[str, str]]:
    values = [b.value for b in module["main"].bindings()]
    return [
        (v.attrs["data_layout"], v.attrs["out_layout"])
        for v in values
        if getattr(v, "op_name", "") == "relax.nn.conv2d"
    ]


IMAGE = {"x": (2, 16, 6, 6)}


def test_layouts_change_at_the_edges_only():
    def build(bb, x):
        a = op.nn.relu(op.add(op.nn.conv2d(x, W(16, 16, 3, 3), padding=1), W(1, 16, 1, 1)))
        return op.nn.relu(op.nn.conv2d(op.nn.max_pool2d(a, pool_size=2), W(8, 16, 1, 1)))

    names = _names(IMAGE, build)
    assert names == [
        "layout_transform",
        "nn.conv2d",
        "add",
        "nn.relu",
        "nn.max_pool2d",
        "nn.conv2d",
        "nn.relu",
        "layout_transform",
    ]


@pytest.mark.parametrize("crop", [(0, 0, 0, 0), (1, 0, 1, 2)])
def test_phases_become_pixels_in_blocks(crop):
    def build(bb, x):
        a = op.nn.depth_to_space(op.nn.conv2d(x, W(32, 16, 1, 1)), strides=(2, 2), crop=crop)
        return op.nn.conv2d(op.nn.relu(op.add(a, W(1, 8, 1, 1))), W(8, 8, 3, 3))

    names = _names(IMAGE, build)
    assert names == [
        "layout_transform",
        "nn.conv2d",
        "nn.depth_to_space",
        "add",
        "nn.relu",
        "nn.conv2d",
        "layout_transform",
    ]


def test_a_first_layer_reads_plain_data():
    module = _blocked(graph({"x": (1, 3, 8, 8)}, lambda bb, x: op.nn.conv2d(x, W(8, 3, 3, 3))))
    assert calls(module) == ["nn.conv2d", "layout_transform"] and _layouts(module) == [("NCHW", "NCHW8c")]


def test_channels_are_padded_with_zero_weights():
    module = _blocked(small_network())
    weights = [
        b.value.args[1].data for b in module["main"].bindings() if getattr(b.value, "op_name", "") == "relax.nn.conv2d"
    ]
    assert [w.shape for w in weights] == [(24, 3, 3, 3), (24, 24, 3, 3)]
    assert not weights[0][20:].any() and not weights[1][20:].any() and not weights[1][:, 20:].any()


def test_padded_channels_are_never_infinite():
    """log(0) times a weight of zero is no number: such a call leaves the region."""

    def build(bb, x):
        a = op.nn.relu(op.nn.conv2d(x, W(12, 16, 1, 1)))
        return op.nn.conv2d(op.log(op.add(op.sigmoid(a), relax.const(0.5))), W(8, 12, 1, 1))

    names = _names(IMAGE, build)
    inside, outside = ["layout_transform", "nn.conv2d", "nn.relu", "sigmoid", "add"], ["layout_transform", "log"]
    assert names == [*inside, *outside, "layout_transform", "nn.conv2d", "layout_transform"]

    def divide(bb, x):
        a, b = (bb.emit(op.nn.conv2d(x, W(12, 16, 1, 1))) for _ in range(2))
        return op.nn.conv2d(op.divide(a, op.add(op.multiply(b, b), relax.const(1.0))), W(8, 12, 1, 1))

    assert np.isfinite(_blocked(graph(IMAGE, divide))["main"].body.body.struct_info.static_shape).all()


def test_depthwise_and_grouped_convolutions():
    def build(bb, x):
        wide = op.nn.relu(op.nn.conv2d(x, W(20, 16, 1, 1)))
        deep = op.nn.conv2d(wide, W(20, 1, 3, 3), groups=20, padding=1, strides=2)
        return op.nn.conv2d(deep, W(16, 20, 1, 1))

    assert _names(IMAGE, build).count("layout_transform") == 2
    dense, grouped = W(16, 16, 1, 1), W(16, 8, 3, 3)
    inside = _blocked(graph(IMAGE, lambda bb, x: op.nn.conv2d(op.nn.conv2d(x, dense), grouped, groups=2)))
    assert _layouts(inside) == [("NCHW8c", "NCHW8c")] * 2
    strided = _blocked(graph(IMAGE, lambda bb, x: op.nn.conv2d(x, W(32, 4, 3, 3), groups=4, strides=2)))
    assert _layouts(strided) == [("NCHW4c", "NCHW4c")]
    several = _blocked(graph(IMAGE, lambda bb, x: op.nn.conv2d(op.nn.conv2d(x, dense), W(16, 4, 3, 3), groups=4)))
    assert _layouts(several) == [("NCHW8c", "NCHW8c")] * 2
    narrow = _blocked(graph(IMAGE, lambda bb, x: op.nn.conv2d(x, W(8, 4, 3, 3), groups=4)))
    assert _layouts(narrow) == [("NCHW", "NCHW")]  # groups of two output channels fill no block


@pytest.mark.parametrize(
    ("channels", "each", "layout"), [(16, 2, "NCHW8c"), (16, 8, "NCHW8c"), (20, 2, "NCHW"), (16, 3, "NCHW")]
)
def test_several_outputs_of_each_channel_come_in_blocks_that_the_data_fill(channels, each, layout):
    def build(bb, x):
        wide = op.nn.relu(op.nn.conv2d(x, W(channels, 16, 1, 1)))
        deep = op.nn.conv2d(wide, W(channels * each, 1, 3, 3), groups=channels, padding=1, strides=2)
        return op.nn.conv2d(deep, W(16, channels * each, 1, 1))

    assert _layouts(_blocked(graph(IMAGE, build)))[1] == (layout, layout)


def test_plain_data_stay_plain_where_two_changes_cost_more():
    deep, grouped, dense = W(16, 1, 3, 3), W(16, 8, 1, 1), W(8, 16, 1, 1)

    def shuffled(bb, x):
        return op.nn.conv2d(op.nn.relu(op.nn.conv2d(x, deep, groups=16, padding=1)), grouped, groups=2)

    assert "layout_transform" not in _names(IMAGE, shuffled)

    def followed(bb, x):
        return op.nn.conv2d(op.nn.relu(op.nn.conv2d(x, deep, groups=16, padding=1)), dense)

    assert _layouts(_blocked(graph(IMAGE, followed))) == [("NCHW8c", "NCHW8c")] * 2

    def chained(bb, x):
        return op.nn.conv2d(op.nn.relu(op.nn.conv2d(x, deep, groups=16, padding=1)), deep, groups=16, padding=1)

    assert _layouts(_blocked(graph(IMAGE, chained))) == [("NCHW8c", "NCHW8c")] * 2

    def strided(bb, x):
        return op.nn.conv2d(x, deep, groups=16, padding=1, strides=2)

    assert _layouts(_blocked(graph(IMAGE, strided))) == [("NCHW8c", "NCHW8c")]


def test_shortcuts_and_broadcast_operands():
    def build(bb, x):
        a = bb.emit(op.nn.conv2d(x, W(16, 16, 3, 3), padding=1))
        b = bb.emit(op.add(a, x))
        gate = bb.emit(op.sigmoid(op.nn.conv2d(op.nn.adaptive_avg_pool2d(b, output_size=1), W(16, 16, 1, 1))))
        place = bb.emit(op.mean(x, axis=1, keepdims=True))
        scaled = op.multiply(op.multiply(b, gate), op.add(place, W(1, 1, 6, 6)))
        return op.add(scaled, W(16, 6, 6))

    assert _names(IMAGE, build).count("layout_transform") == 2


@pytest.mark.parametrize(
    ("channels", "joined"), [((8, 16), True), ((16, 12), True), ((12, 16), True), ((6, 16), False)]
)
def test_concat_where_parts_fill_their_blocks(channels, joined):
    def build(bb, x):
        parts = [bb.emit(op.nn.relu(op.nn.conv2d(x, W(c, 16, 1, 1)))) for c in channels]
        return op.nn.conv2d(bb.emit(op.concat(parts, axis=1)), W(8, sum(channels), 1, 1))

    module = _blocked(graph(IMAGE, build))
    shape = next(b.var.struct_info for b in module["main"].bindings() if b.value.op_name == "relax.concat").static_shape
    assert (len(shape) == 5) is joined


def test_concat_along_rows():
    def build(bb, x):
        a, b = (bb.emit(op.nn.conv2d(x, W(12, 16, 1, 1))) for _ in range(2))
        return op.nn.conv2d(op.concat([a, b], axis=2), W(8, 12, 1, 1))

    assert _names(IMAGE, build).count("layout_transform") == 2


def test_means_over_the_image():
    def build(bb, x):
        conv = bb.emit(op.nn.conv2d(x, W(8, 16, 1, 1)))
        return op.mean(conv, axis=(-2, -1), keepdims=True), op.max(conv, axis=(2, 3), keepdims=False)

    module = _blocked(graph(IMAGE, build))
    assert calls(module) == ["layout_transform", "nn.conv2d", "mean", "reshape", "layout_transform", "max"]


def test_normalised_images_stay_in_the_region():
    """The mean is computed once, for the distances and for the variance."""

    def build(bb, x):
        conv = bb.emit(op.nn.conv2d(x, W(16, 16, 1, 1)))
        centred = op.subtract(conv, op.mean(conv, axis=(2, 3), keepdims=True))
        spread = op.add(op.variance(conv, axis=(2, 3), keepdims=True), relax.const(1e-5))
        return op.nn.conv2d(op.multiply(centred, op.rsqrt(spread)), W(8, 16, 1, 1))

    names = _names(IMAGE, build)
    assert names.count("layout_transform") == 2 and names.count("mean") == 2 and "variance" not in names


def test_choices_between_two_values_stay_in_the_region():
    def build(bb, x):
        conv = bb.emit(op.nn.conv2d(x, W(12, 16, 1, 1)))
        slope = op.where(op.greater(conv, relax.const(0.0)), conv, op.multiply(conv, W(12, 1, 1)))
        return op.nn.conv2d(slope, W(8, 12, 1, 1))

    names = _names(IMAGE, build)
    assert names.count("layout_transform") == 2 and names[2:5] == ["greater", "multiply", "where"]


def test_one_pixel_needs_no_copy():
    def build(bb, x):
        mean = bb.emit(op.nn.adaptive_avg_pool2d(op.nn.conv2d(x, W(16, 16, 1, 1)), output_size=1))
        return op.matmul(op.reshape(mean, (2, 16)), W(16, 4))

    module = _blocked(graph(IMAGE, build))
    assert calls(module).count("layout_transform") == 1


def test_padding_stays_in_the_region():
    def build(bb, x):
        conv = bb.emit(op.nn.conv2d(x, W(16, 16, 1, 1)))
        return op.nn.conv2d(op.nn.pad(conv, pad_width=(0, 0, 0, 0, 1, 1, 1, 1)), W(8, 16, 3, 3))

    assert _names(IMAGE, build) == ["layout_transform", "nn.conv2d", "nn.pad", "nn.conv2d", "layout_transform"]


@pytest.mark.parametrize("channels", [16, 12])
def test_images_of_other_sizes_and_reflected_borders_stay_in_the_region(channels):
    def build(bb, x):
        conv = bb.emit(op.nn.conv2d(x, W(channels, 16, 1, 1)))
        larger = op.image.resize2d(conv, relax.ShapeExpr((9, 12)), method="nearest_neighbor")
        smooth = op.image.resize2d(larger, relax.ShapeExpr((11, 9)))
        rows = op.take(smooth, relax.const(np.array([1, *range(11), 9])), axis=2)
        columns = op.take(rows, relax.const(np.array([1, *range(9), 7])), axis=-1)
        return op.nn.conv2d(columns, W(8, channels, 3, 3))

    inner = ["nn.conv2d", "image.resize2d", "image.resize2d", "take", "take", "nn.conv2d"]
    assert _names(IMAGE, build) == ["layout_transform", *inner, "layout_transform"]


@pytest.mark.parametrize(("channels", "is_plain"), [(19, False), (2, True)])
def test_a_last_resize_gathers_pixels_of_few_channels_alone(channels, is_plain):
    def build(bb, x):
        scores = op.nn.conv2d(op.nn.relu(op.nn.conv2d(x, W(16, 16, 3, 3))), W(channels, 16, 1, 1))
        return op.image.resize2d(scores, relax.ShapeExpr((24, 24)))

    names = calls(_blocked(graph({"x": (1, 16, 8, 8)}, build), 16))
    assert (names[-1] == "image.resize2d") is is_plain


def test_channels_are_taken_from_plain_values():
    def build(bb, x):
        conv = bb.emit(op.nn.conv2d(x, W(16, 16, 1, 1)))
        return op.nn.conv2d(op.take(conv, relax.const(np.arange(15, -1, -1)), axis=1), W(8, 16, 3, 3))

    assert _names(IMAGE, build).count("layout_transform") == 4


def test_a_last_layer_of_few_channels_is_plain():
    """Of blocks of 16 for three channels 13 would be computed for nothing."""

    def network(channels, stride=1):
        def build(bb, x):
            wide = op.nn.relu(op.nn.conv2d(x, W(16, 16, 3, 3), padding=1))
            return op.nn.conv2d(wide, W(channels, 16, 5, 5), padding=2, strides=stride)

        return _layouts(_blocked(graph({"x": (1, 16, 24, 24)}, build), 16))[-1]

    assert network(3) == network(1) == ("NCHW", "NCHW")
    assert network(8)[1] == "NCHW16c" == network(3, stride=2)[1]


def test_other_operators_get_plain_values():
    def build(bb, x):
        conv = bb.emit(op.nn.conv2d(x, W(16, 16, 1, 1)))
        shuffled = op.reshape(op.permute_dims(op.reshape(conv, (2, 4, 4, 6, 6)), axes=(0, 2, 1, 3, 4)), (2, 16, 6, 6))
        return op.nn.softmax(op.nn.lrn(shuffled), axis=1)

    names = _names(IMAGE, build)
    assert names == [
        "layout_transform",
        "nn.conv2d",
        "layout_transform",
        "reshape",
        "permute_dims",
        "reshape",
        "nn.lrn",
        "nn.softmax",
    ]


def test_a_way_out_and_back_is_made_once():
    def build(bb, x):
        conv = bb.emit(op.nn.conv2d(x, W(16, 16, 1, 1)))
        return op.nn.softmax(conv, axis=1), op.nn.lrn(conv), op.nn.conv2d(conv, W(8, 16, 1, 1)), conv

    assert _names(IMAGE, build).count("layout_transform") == 3


def test_values_read_plain_and_blocked():
    def build(bb, x):
        both = bb.emit(op.exp(x))
        return op.nn.softmax(both, axis=1), op.nn.conv2d(both, W(8, 16, 1, 1)), op.nn.conv2d(both, W(8, 16, 3, 3))

    assert _names(IMAGE, build).count("layout_transform") == 3


def test_weights_that_are_parameters():
    shapes = {"x": (1, 16, 5, 5), "w": (12, 16, 3, 3), "v": (8, 12, 1, 1)}
    names = _names(shapes, lambda bb, x, w, v: op.nn.conv2d(op.nn.relu(op.nn.conv2d(x, w)), v))
    assert names == ["layout_transform", "nn.pad", "nn.conv2d", "nn.relu", "nn.pad", "nn.conv2d", "layout_transform"]


def test_blocks_chosen_for_each_call():
    sizes = iter((8, 4))
    module = graph(IMAGE, lambda bb, x: op.nn.conv2d(op.nn.conv2d(x, W(16, 16, 1, 1)), W(12, 16, 1, 1)))
    result = ChooseLayouts(lambda call: next(sizes))(module)
    assert_same_results(module, result)
    assert _layouts(result) == [("NCHW8c", "NCHW8c"), ("NCHW8c", "NCHW4c")]


@pytest.mark.parametrize(
    ("channels", "layout"), [(24, "NCHW8c"), (32, "NCHW16c"), (48, "NCHW16c"), (120, "NCHW16c"), (40, "NCHW8c")]
)
def test_half_a_vector_is_a_block_where_channels_fill_no_vectors(channels, layout):
    """What is read of a padded block is computed with, too."""

    def build(bb, x):
        narrow = bb.emit(op.nn.conv2d(x, W(channels, 96, 1, 1)))
        return op.nn.conv2d(narrow, W(96, channels, 1, 1))

    module = graph({"x": (1, 96, 28, 28)}, build)
    result = ChooseLayouts((8, 16, 32))(module)
    assert [out for _, out in _layouts(result)] == [layout, "NCHW16c"]
    assert_same_results(module, result)


@pytest.mark.parametrize(("channels", "layout"), [(24, "NCHW8c"), (144, "NCHW16c")])
def test_windows_of_one_channel_fill_vectors_where_they_can(channels, layout):
    def build(bb, x):
        first = bb.emit(op.nn.conv2d(x, W(channels, 1, 3, 3), groups=channels, padding=1))
        return op.nn.conv2d(first, W(channels, 1, 3, 3), groups=channels, padding=1)

    result = ChooseLayouts((8, 16, 32))(graph({"x": (1, channels, 28, 28)}, build))
    assert {out for _, out in _layouts(result)} == {layout}


def test_two_halves_of_vectors_are_joined_in_their_blocks():
    def build(bb, x):
        half = bb.emit(op.nn.conv2d(x, W(24, 16, 1, 1)))
        other = bb.emit(op.nn.conv2d(half, W(24, 1, 3, 3), groups=24, padding=1))
        return op.nn.conv2d(op.concat([half, other], axis=1), W(16, 48, 1, 1))

    module = graph({"x": (1, 16, 28, 28)}, build)
    assert calls(ChooseLayouts((16, 32))(module)).count("layout_transform") > 2
    result = ChooseLayouts((8, 16, 32))(module)
    assert calls(result).count("layout_transform") == 2
    assert_same_results(module, result)


def test_blocks_of_bytes_fill_vectors():
    """Words of channels come by whole vectors, however few channels there are."""
    rng = np.random.default_rng(0)

    def build(bb, x):
        data = bb.emit(op.astype(bb.emit(op.clip(x, min=0.0, max=9.0)), "uint8"))
        weight = relax.const(rng.integers(-9, 9, (24, 24, 1, 1)).astype("int8"))
        return op.nn.conv2d(data, weight, out_dtype="int32")

    result = ChooseLayouts((8, 16, 32))(graph({"x": (1, 24, 28, 28)}, build))
    assert {out for _, out in _layouts(result)} == {"NCHW16c"}


def test_graphs_without_images_stay():
    module = graph({"x": (2, 3)}, lambda bb, x: op.nn.relu(op.matmul(x, W(3, 3))))
    assert ChooseLayouts(8)(module) is module
    assert FoldConstant()(module) is module


def test_a_lone_mean_stays_plain_and_a_lone_pool_goes_where_it_is_cheapest():
    image = {"x": (1, 32, 14, 14)}
    assert _names(image, lambda bb, x: op.nn.adaptive_avg_pool2d(x, output_size=1)) == ["nn.adaptive_avg_pool2d"]
    flat = _names(image, lambda bb, x: op.nn.avg_pool2d(x, pool_size=3, strides=1, padding=1))
    assert flat.count("nn.avg_pool2d") == 1
    strided = _names({"x": (1, 32, 56, 56)}, lambda bb, x: op.nn.max_pool2d(x, pool_size=3, strides=2, padding=1))
    assert strided == ["layout_transform", "nn.max_pool2d", "layout_transform"]


def test_one_channel_beside_many():
    """A gate of one channel is stored in a block of its own and has to be spread over all of them."""

    def build(bb, x):
        a = bb.emit(op.nn.conv2d(x, W(16, 16, 3, 3), padding=1))
        gate = bb.emit(op.sigmoid(op.nn.conv2d(a, W(1, 16, 3, 3), padding=1)))
        return op.nn.conv2d(op.multiply(a, gate), W(8, 16, 1, 1))

    _blocked(graph(IMAGE, build))


def test_measured_times_decide():
    class Oracle:
        """Blocks of 16 were measured to be faster for everything."""

        def seconds(self, call, has, result):
            return 1e-6 if result == 16 else 2e-6

    def build(bb, x):
        return op.nn.conv2d(op.nn.relu(op.nn.conv2d(x, W(16, 16, 3, 3), padding=1)), W(16, 16, 3, 3), padding=1)

    module = graph(IMAGE, build)
    assert {out for _, out in _layouts(ChooseLayouts((8, 16))(module))} == {"NCHW8c"}
    assert {out for _, out in _layouts(ChooseLayouts((8, 16), Oracle())(module))} == {"NCHW16c"}


def test_what_lies_between_convolutions_in_tiles_is_in_their_blocks():
    """A pool and a depthwise convolution of bytes take blocks of tiles, too; a first layer gives them."""
    rng = np.random.default_rng(0)

    def weight(*shape):
        return relax.const(rng.integers(-128, 128, shape).astype("int8"))

    def byte(bb, x):
        real = op.multiply(bb.emit(op.astype(x, "float32")), relax.const(np.float32(2.0**-10)))
        return bb.emit(op.astype(bb.emit(op.clip(bb.emit(op.round(bb.emit(real))), min=0.0, max=255.0)), "uint8"))

    def build(bb, x):
        first = op.nn.conv2d(byte(bb, x), weight(64, 3, 7, 7), strides=2, padding=3, out_dtype="int32")
        pooled = bb.emit(op.nn.max_pool2d(byte(bb, bb.emit(first)), pool_size=2, strides=2))
        each = op.nn.conv2d(pooled, weight(64, 1, 3, 3), padding=1, groups=64, out_dtype="int32")
        return op.nn.conv2d(byte(bb, bb.emit(each)), weight(64, 64, 3, 3), padding=1, out_dtype="int32")

    module = graph({"x": (1, 3, 64, 64)}, build)
    result = ChooseLayouts((16, 32), tile_blocks={"uint8": 64})(module)
    assert_same_results(module, result)
    assert _layouts(result) == [("NCHW4c", "NCHW64c"), ("NCHW64c", "NCHW64c"), ("NCHW64c", "NCHW64c")]


def test_a_sound_of_open_length_is_planned_with_frames():
    """Of 256 samples `n // 160 - 1` leaves no frame, for which every plan costs nothing."""
    n, bb = Var("n", "int64"), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 1, n), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(op.nn.conv2d(x, W(32, 1, 1, 320), strides=(1, 160)))
        bb.emit_func_output(out)
    assert _layouts(ChooseLayouts(16)(bb.get())) == [("NCHW", "NCHW16c")]
