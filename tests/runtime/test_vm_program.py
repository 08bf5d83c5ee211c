"""VM programs that were changed: refused when they are read, or run to a result or an error of ours."""

import json
import random
import struct

import numpy as np
import pytest

from autosched.errors import ArtifactError, AutoschedError, TVMError
from autosched.runtime.array import array
from autosched.runtime.vm_code import Param, VMFunction
from autosched.runtime.vm_interpreter import MOST_CALLS
from autosched.runtime.vm_program import Program
from tests.runtime.kernels import chain
from tests.runtime.test_artifact_fuzz import change

_SHAPE = (3, 64)


def _program(depth_function=True):
    x, condition = Param("x", _SHAPE, "float32"), Param("c", (), "bool")
    main = VMFunction(
        "main", (x, condition), 6,
        (
            ["run", 0, [0], [2]],
            ["if", 1, [["run", 0, [2], [3]], ["move", 2, 3]], [["const", 3, 0], ["move", 2, 3]]],
            ["tuple", 4, [2, 0]],
            ["item", 5, 4, 0],
            ["call", 5, "twice", [5]],
        ),
        5,
    )  # fmt: skip
    twice = VMFunction("twice", (x,), 2, (["run", 0, [0], [1]],), 1)
    return Program({"main": main, "twice": twice}, (chain(3, 1),), (np.ones(_SHAPE, "f"),), manifest={"target": "cpu"})


def _call(program, condition=True):
    return program.call("main", [array(np.ones(_SHAPE, "f")), array(np.asarray(condition))])


def test_branches_calls_and_tuples():
    again = Program.from_text(_program().to_text(), _program().library())
    for program in (_program(), again):
        np.testing.assert_array_equal(_call(program).numpy(), np.full(_SHAPE, 8))
        np.testing.assert_array_equal(_call(program, False).numpy(), np.full(_SHAPE, 2))


def test_deep_recursion_needs_none_of_pythons_and_has_an_end():
    """f(n) calls itself until a packed function says stop; Python's limit is far below."""
    from autosched.runtime.registry import register_func

    left = [0]

    @register_func("test.vm_program.more", override=True)
    def more():
        left[0] -= 1
        return array(np.asarray(left[0] > 0))

    code = (["packed", 1, "test.vm_program.more", []], ["if", 1, [["call", 0, "f", [0]]], []])
    program = Program({"f": VMFunction("f", (Param("x"),), 2, code, 0)}, ())
    left[0] = MOST_CALLS - 1
    value = array(np.ones(3))
    np.testing.assert_array_equal(program.call("f", [value]).numpy(), np.ones(3))
    left[0] = MOST_CALLS + 10
    with pytest.raises(TVMError, match=f"more than {MOST_CALLS} calls"):
        program.call("f", [value])


def test_a_call_at_the_end_needs_no_stack():
    from autosched.runtime.registry import register_func

    left = [3 * MOST_CALLS]

    @register_func("test.vm_program.more_at_the_end", override=True)
    def more():
        left[0] -= 1
        return array(np.asarray(left[0] > 0))

    code = (["packed", 1, "test.vm_program.more_at_the_end", []], ["if", 1, [["tail", "f", [0]]], []])
    program = Program({"f": VMFunction("f", (Param("x"),), 2, code, 0)}, ())
    np.testing.assert_array_equal(program.call("f", [array(np.ones(3))]).numpy(), np.ones(3))
    assert left[0] == 0


def _changed(data, edit):
    (size,) = struct.unpack_from("<Q", data, 8)
    content = json.loads(data[16 : 16 + size])
    edit(content)
    text = json.dumps(content).encode()
    return data[:8] + struct.pack("<Q", len(text)) + text + data[16 + size :]


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c["functions"][0][3][0].__setitem__(1, 7),  # a segment that is not there
        lambda c: c["functions"][0][3][0].__setitem__(2, [0, 1]),  # too many arguments
        lambda c: c["functions"][0][3][0].__setitem__(3, [99]),  # a register that is not there
        lambda c: c["functions"][0][3][1][2][0].__setitem__(3, [-1]),  # the same inside of a branch
        lambda c: c["functions"][0].__setitem__(4, 6),  # so is the result's
        lambda c: c["functions"][0].__setitem__(2, 1 << 60),  # more registers than memory
        lambda c: c["functions"][0][3][4].__setitem__(2, "none"),  # a function that is not there
        lambda c: c["functions"][0][3][1][3][0].__setitem__(2, 1),  # a constant that is not there
        lambda c: c["functions"][0][3][0].__setitem__(2, [3]),  # a register in which nothing is yet
        lambda c: c["functions"][0][3][1][3].pop(0),  # after one branch of two
        lambda c: c["functions"][0][3].__delitem__(slice(3, 5)),  # at the end
        lambda c: c["functions"][0][3].append(["jump", 0]),
        lambda c: c["functions"][0][3].append(7),
        lambda c: c.__setitem__("late", {"c0": [[1 << 45], "float32"]}),
        lambda c: c["segments"][0]["graph"].__setitem__("arena_bytes", 1 << 45),
    ],
)
def test_code_that_names_what_is_not_there_is_refused(edit):
    data, library = _program().to_bytes(), _program().library()
    assert Program.from_bytes(_changed(data, lambda content: None), library)
    with pytest.raises(ArtifactError, match="VM program is damaged"):
        Program.from_bytes(_changed(data, edit), library)


def test_changed_programs_end_with_a_result_or_an_error_of_ours():
    data, library, ran = _program().to_bytes(), _program().library(), 0
    for seed in range(600):
        changed = _changed(data, lambda content, seed=seed: change(content, random.Random(seed)))
        try:
            program = Program.from_bytes(changed, library)
            function = program.functions.get("main")
            if function is not None and len(function.params) == 2:
                _call(program)
            ran += 1
        except AutoschedError as error:
            assert "\n" not in str(error)
    assert ran > 20
