import numpy as np
import pytest

from autosched.errors import InvalidValueError, ShapeError
from autosched.relax import op
from autosched.relax.transform import BindParams
from tests.relax.transform.graphs import graph, run


def _dense():
    return graph({"x": (2, 3), "w": (3, 4)}, lambda bb, x, w: op.matmul(x, w))


def test_bound_by_name_and_by_var():
    module = _dense()
    weight = np.ones((3, 4))  # float64: takes the parameter's dtype
    for key in ("w", module["main"].params[1]):
        bound = BindParams("main", {key: weight})(module)
        assert [p.name for p in bound["main"].params] == ["x"]
        rng = np.random.default_rng(1)
        x = rng.standard_normal((2, 3)).astype(np.float32)
        np.testing.assert_allclose(run(bound)[0], x @ weight, rtol=1e-6)
    assert len(module["main"].params) == 2


def test_counts_of_inputs_follow():
    module = _dense()
    module["main"] = module["main"].with_attr("num_input", 1)
    assert BindParams("main", {"w": np.ones((3, 4))})(module)["main"].attrs["num_input"] == 1
    assert BindParams("main", {"x": np.ones((2, 3))})(module)["main"].attrs["num_input"] == 0


def test_refuses_unknown_names_and_wrong_shapes():
    with pytest.raises(InvalidValueError, match="no parameter 'v'"):
        BindParams("main", {"v": np.ones(1)})(_dense())
    with pytest.raises(ShapeError, match=r"parameter 'w' is \(3, 4\), got \(4, 3\)"):
        BindParams("main", {"w": np.ones((4, 3))})(_dense())
