"""The kinds of operators that random models are made of; each is a small function below, found in KINDS."""

from tests.frontend.random_onnx.kinds import (
    arrange,
    computed_sizes,
    contrib,
    control,
    elementwise,
    index,
    more,
    normalize,
    products,
    quantise,
    reduce,
    sequences,
    windows,
)
from tests.frontend.random_onnx.kinds.base import KINDS, Kind
