import gc
import threading

import numpy as np
import pytest

from autosched.runtime.lender import LEAST_LENT, Copies, Lender
from autosched.runtime.memory import ALIGNMENT, address_of

LARGE = (3, 1 << 16)


def test_memory_comes_back_when_the_last_that_holds_it_is_gone() -> None:
    lender = Lender()
    first = lender.empty(LARGE, "f4")
    place = address_of(first)
    held = [first[1:], memoryview(first), np.from_dlpack(first), first.reshape(-1).view("u1")[5:9]]
    del first
    while held:
        other = lender.empty(LARGE, "f4")
        assert address_of(other) != place
        held.pop()
    del other
    second = lender.empty((5, 7, 1024), "f8")
    assert second.flags.writeable and second.flags.c_contiguous and address_of(second) % ALIGNMENT == 0
    assert place in (address_of(second), address_of(lender.empty(LARGE, "f4")))


def test_arrays_that_are_held_never_change() -> None:
    lender = Lender()
    held = []
    for n in range(20):
        made = lender.empty(LARGE, "i4")
        made[...] = n
        if n % 3 == 0:
            held.append((n, made))
    assert len({address_of(made) for _, made in held}) == len(held)
    assert all((made == n).all() for n, made in held)


def test_one_block_is_kept_and_none_that_is_far_too_large() -> None:
    lender = Lender()
    arrays = [lender.empty(LARGE, "f4") for _ in range(5)]
    arrays.clear()
    assert len(lender._idle) == 1
    lender.empty((LEAST_LENT // 4,), "f4")
    assert len(lender._idle) == 1 and len(lender._idle[0]) < 2 * LEAST_LENT


def test_a_block_for_sizes_that_grow_has_room() -> None:
    lender, places = Lender(), set()
    for n in range(1000, 1200):
        array = lender.empty((n, 64), "f4")
        places.add(address_of(array))
        del array
    assert len(places) <= 4


def test_small_arrays_are_new_ones() -> None:
    lender = Lender()
    lender.empty((LEAST_LENT - 1,), "u1")
    assert not lender._idle


def test_threads_and_the_collector_give_back_at_any_time() -> None:
    lender, wrong = Lender(), []

    def use(n: int) -> None:
        for _ in range(200):
            made = lender.empty((1 << 15,), "i4")
            made[...] = n
            cycle = [made]
            cycle.append(cycle)  # type: ignore[arg-type]
            if not (made == n).all():
                wrong.append(n)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not wrong


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (5, 7), (1,), (600,), (2, 2), (70, 80)])
def test_copies_share_blocks_and_do_not_touch(shape: tuple[int, ...], dtype: str) -> None:
    data = np.zeros(shape, dtype)
    copies, made = Copies(data), []
    for n in range(600 if data.size < 1000 else 20):
        data[...] = n % 251
        made.append(copies.make())
    assert all(m.ctypes.data % ALIGNMENT == 0 and m.flags.c_contiguous and m.flags.writeable for m in made if m.size)
    for n, m in enumerate(made):
        assert type(m) is np.ndarray and m.dtype == data.dtype
        np.testing.assert_array_equal(m, np.full(shape, n % 251, dtype))
