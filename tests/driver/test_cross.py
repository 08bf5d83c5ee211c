"""Models built for another architecture: NEON's vectors, no spills in hot loops, refused here and built again."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.codegen import compile_func
from autosched.errors import ArtifactError
from autosched.records import FallbackContext
from autosched.target import Target
from autosched.templates import apply_config, default_config
from tests.emulated.networks import NETWORKS
from tests.emulated.qemu import PROGRAM
from tests.templates.cases import dense

ARM = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=2")


def test_a_product_fills_the_registers_of_neon() -> None:
    func = dense(64, 128, 80)
    applied = apply_config(func, default_config(func, ARM), ARM)
    report = compile_func(applied.func, ARM, name="k").report()
    assert report.vector_bits == 128 and report.fmas >= 20 and report.scalar_loops == 0
    assert report.sum_spills == 0


def test_an_artifact_says_what_it_is_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    module = NETWORKS["small"]()
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype("f")
    built = autosched.build(module, target=ARM, records=FallbackContext(), threads=1)
    with pytest.raises(ArtifactError, match="for aarch64, and this machine is"):
        built(x)
    built.save(tmp_path / "arm.asx")
    again = autosched.load(tmp_path / "arm.asx")
    assert "holds machine code for aarch64" in caplog.text and "built again for this machine" in caplog.text
    wanted = relax.evaluate(module, [x], dtype="float64")
    np.testing.assert_allclose(again(x).numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"{PROGRAM} is not installed")
def test_code_for_another_architecture_runs_in_an_emulated_process(tmp_path: Path) -> None:
    from tests.emulated.__main__ import main

    words = ["--target", str(ARM), "--only", "^networks: (small|transformer)|^functions: exp"]
    assert main([*words, "--folder", str(tmp_path)]) == 0
