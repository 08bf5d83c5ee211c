"""Convolutions over three dimensions become convolutions over images: all planes of all volumes are a batch of them.

conv3d(x, w)  ->  volumes(conv2d(plane_windows(images(x)), w'))

    images         [N, C, D, H, W] -> [N * D, C, H, W]
    plane_windows  the planes that a window reads are channels of one image; left out where it reads one
    w'             [O, C, KD, KH, KW] -> [O, KD * C, KH, KW]

A window over one pixel of each plane needs no other order: planes are the rows of images [N, C, D, H * W].

Element-wise calls behind it compute on images, too, so that they join the convolution's kernel and the next
convolution takes its images as they are.
"""

from __future__ import annotations

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, ShapeExpr, Tuple, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo, same_dims
from autosched.relax.transform.blocked import image_shape_of, shape_of
from autosched.relax.transform.layout_rules import is_broadcast, is_elementwise
from autosched.tir.expr import as_int
from autosched.topi.shapes import ImageShape, known

RANK = 5
SWAPPED = (0, 2, 1, 3, 4)  # the axes of channels and planes


def _volumes_of(x: Expr) -> ImageShape:
    """The shape of volumes [N, C, D, H, W] whose planes are counted; () for anything else."""
    shape = image_shape_of(x)
    return shape if len(shape) == RANK and isinstance(shape[2], int) else ()


class _Planes(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.images: dict[Var, Expr] = {}  # volumes that are computed as images -> those
        self.moved: dict[Var, Expr] = {}  # other volumes -> their images

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name == "relax.nn.conv3d" and (columns := self.columns(call)) is not None:
            return columns
        shape = _volumes_of(call)
        result = self.on_images(call) if shape else None
        if result is None:
            return call
        self.images[var] = images = self.emit(result)
        n, channels, depth, *size = shape
        apart = self.emit(op.reshape(images, ShapeExpr((n, depth, channels, *size))))
        return op.permute_dims(apart, axes=SWAPPED)

    def on_images(self, call: Call) -> Expr | None:
        """The call as one on images; None where it is none."""
        if call.op_name == "relax.nn.conv3d":
            return self.convolution(call)
        if call.op_name == "relax.concat":
            return self.joined(call)
        definition = definition_of(call)
        if definition is None or not (is_elementwise(definition) or is_broadcast(definition)):
            return None
        if not any(isinstance(a, Var) and a in self.images for a in call.args):
            return None
        arguments = [self.brought(a, call) for a in call.args]
        return None if None in arguments else remake(call, [a for a in arguments if a is not None])

    def convolution(self, call: Call) -> Expr | None:
        data, weight = call.args
        shape, kernel, attrs = _volumes_of(data), shape_of(weight), call.attrs
        padding, groups = attrs["padding"], attrs["groups"]
        if not shape or not kernel or min(padding) < 0:
            return None
        (stride, *strides), (dilation, *dilations) = attrs["strides"], attrs["dilation"]
        images, around = self.images_of(data), (padding[0], padding[3])
        if kernel[2] > 1 or stride > 1 or any(around):
            along = {"depth": shape[2], "kernel": kernel[2], "stride": stride, "padding": around, "dilation": dilation}
            images = self.emit(op.nn.plane_windows(images, **along, groups=groups))
        return op.nn.conv2d(
            images, self.flat_weight(weight, kernel), strides=tuple(strides), dilation=tuple(dilations),
            padding=(*padding[1:3], *padding[4:]), groups=groups, out_dtype=attrs["out_dtype"],
        )  # fmt: skip

    def columns(self, call: Call) -> Expr | None:
        """A convolution along planes alone, whose planes become rows; None where it is another one."""
        data, weight = call.args
        shape, kernel, attrs = _volumes_of(data), shape_of(weight), call.attrs
        padding, is_pixel = attrs["padding"], attrs["strides"][1:] == (1, 1) and kernel[3:] == (1, 1)
        is_column = is_pixel and not any((*padding[1:3], *padding[4:])) and min(padding) >= 0
        if not shape or not is_column or data in self.images or not _volumes_of(call):
            return None
        n, channels, depth, *size = shape
        rows = self.reshaped(data, (n, channels, depth, known(size[0] * size[1])))
        images = op.nn.conv2d(
            rows, self.reshaped(weight, (*kernel[:3], 1)), strides=(attrs["strides"][0], 1),
            dilation=(attrs["dilation"][0], 1), padding=(padding[0], 0, padding[3], 0), groups=attrs["groups"],
            out_dtype=attrs["out_dtype"],
        )  # fmt: skip
        return op.reshape(self.emit(images), ShapeExpr(_volumes_of(call)))  # type: ignore[no-any-return]

    def flat_weight(self, weight: Expr, kernel: tuple[int, ...]) -> Expr:
        flat = (kernel[0], kernel[1] * kernel[2], *kernel[3:])
        if isinstance(weight, Constant):
            return Constant(np.ascontiguousarray(weight.data.transpose(SWAPPED)).reshape(flat))
        return self.reshaped(self.emit(op.permute_dims(weight, axes=SWAPPED)), flat)

    def joined(self, call: Call) -> Expr | None:
        """A concatenation of channels, all of which are images."""
        parts = call.args[0].fields if isinstance(call.args[0], Tuple) else ()
        images = tuple(self.images[p] for p in parts if isinstance(p, Var) and p in self.images)
        if call.attrs["axis"] % RANK != 1 or not parts or len(images) < len(parts):
            return None
        return op.concat(Tuple(images), axis=1)  # type: ignore[no-any-return]

    def images_of(self, x: Expr) -> Expr:
        if isinstance(x, Var) and x in self.images:
            return self.images[x]
        if not isinstance(x, Var) or x not in self.moved:
            n, channels, depth, *size = _volumes_of(x)
            swapped = self.emit(op.permute_dims(x, axes=SWAPPED))
            images = self.reshaped(swapped, (known(n * depth), channels, *size))
            if not isinstance(x, Var):
                return images
            self.moved[x] = images
        return self.moved[x]

    def brought(self, x: Expr, call: Call) -> Expr | None:
        """An argument of an element-wise call for images; None where it differs between planes and is no volume."""
        info, result = x.struct_info, call.struct_info
        assert isinstance(info, TensorStructInfo) and isinstance(result, TensorStructInfo), "arguments are tensors"
        if info.shape is None:
            return None
        if same_dims(info.dims, result.dims):
            return self.images_of(x)
        wide = (*(1 for _ in range(RANK - info.ndim)), *info.dims)
        if wide[0] != 1 or wide[2] != 1:
            return None
        if info.ndim < RANK - 2:
            return x
        return self.reshaped(x, (1, wide[1], *wide[3:]))

    def reshaped(self, x: Expr, shape: ImageShape) -> Expr:
        if isinstance(x, Constant):
            return Constant(x.data.reshape(tuple(map(as_int, shape))))
        return self.emit(op.reshape(x, ShapeExpr(shape)))


def convolve_planes(module: IRModule) -> IRModule:
    """Replace `nn.conv3d` over volumes whose planes are counted by `nn.conv2d`, with what is element-wise behind it."""
    return map_functions(module, lambda function: _Planes().rewrite(function))


def ConvolvePlanes() -> Pass:  # noqa: N802
    """See `convolve_planes`."""
    return graph_pass("ConvolvePlanes")(convolve_planes)


__all__ = ["ConvolvePlanes", "convolve_planes"]
