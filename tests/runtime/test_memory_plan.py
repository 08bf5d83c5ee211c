from hypothesis import given
from hypothesis import strategies as st

from autosched.runtime.memory import ALIGNMENT
from autosched.runtime.memory_plan import Lifetime, align, plan_by_maker, plan_memory


def test_memory_is_used_again():
    chain = [Lifetime(100, i, i + 1) for i in range(6)]
    offsets, size = plan_memory(chain)
    assert size == 2 * align(100) and all(o % ALIGNMENT == 0 for o in offsets)


def test_best_fit_keeps_the_large_gap():
    values = [
        Lifetime(640, 0, 1),
        Lifetime(64, 0, 9),
        Lifetime(128, 0, 1),
        Lifetime(64, 0, 9),
        Lifetime(128, 3, 4),
        Lifetime(640, 3, 4),
    ]
    assert plan_memory(values)[1] == 640 + 64 + 128 + 64


def test_nothing_to_place():
    assert plan_memory([]) == ((), 0)


lives = st.builds(
    lambda size, first, length: Lifetime(size, first, first + length),
    st.integers(0, 500),
    st.integers(0, 9),
    st.integers(0, 5),
)


def test_values_share_memory_with_those_of_their_maker_alone():
    chain = [Lifetime(100, i, i + 1) for i in range(8)]
    makers = [0, 1, 1, 2, 0, 1, 1, 2]
    offsets, size = plan_by_maker(chain, makers)
    assert size == 4 * align(100)
    assert offsets[:4] == offsets[4:] and len(set(offsets)) == 4  # both of maker 1 live at once


@given(st.lists(lives, max_size=12), st.integers(0, 3))
def test_values_alive_together_do_not_overlap(values, makers):
    offsets, size = plan_by_maker(values, [i % makers for i in range(len(values))]) if makers else plan_memory(values)
    for i, a in enumerate(values):
        assert offsets[i] % ALIGNMENT == 0 and offsets[i] + a.size_bytes <= size
        for j in range(i):
            b = values[j]
            apart = offsets[i] + a.size_bytes <= offsets[j] or offsets[j] + b.size_bytes <= offsets[i]
            assert apart or not a.overlaps(b)
