"""`autosched quantize`: a model of bytes from a model of floats, by ONNX Runtime's quantiser."""

from __future__ import annotations

from pathlib import Path

import click

from autosched.cli.common import Common, make_command
from autosched.cli.inputs import read_arrays
from autosched.cli.output import print_json, say
from autosched.cli.paths import check_file, check_output
from autosched.errors import UsageError

EXAMPLE = """
autosched quantize model.onnx --data samples.npz -o model.int8.onnx
autosched quantize model.onnx --data samples.npz --skip /head/Gemm
"""


@make_command("quantize", example=EXAMPLE)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), help="Samples of the inputs (.npz), [samples, …] each.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: MODEL with .int8.onnx for its ending.")
@click.option("--activations", type=click.Choice(["uint8", "int8"]), default="uint8", help="The type of values.")
@click.option("--per-tensor", is_flag=True, help="One scale for a weight, not one for each of its channels.")
@click.option("--skip", multiple=True, metavar="NODE", help="Leave a node as it is; may be repeated.")
def command(
    common: Common,
    model: Path,
    data: Path | None,
    output: Path | None,
    activations: str,
    per_tensor: bool,
    skip: tuple[str, ...],
) -> None:
    """Quantise MODEL (.onnx) with the ranges that its values take on samples; needs onnxruntime.

    The result is an ordinary ONNX model. `build` computes its products and convolutions of bytes.
    """
    if data is None:
        raise UsageError("no calibration data", hint="--data FILE.npz with an array [samples, …] for each input")
    check_file(model)
    if model.suffix != ".onnx":
        raise UsageError(f"{model} is no .onnx file", hint="export the model to ONNX first")
    check_file(data)
    out = output or model.with_suffix(".int8.onnx")
    check_output(out, inputs=[model, data])
    from autosched.driver.quantize import input_shapes, quantize, split_samples

    shapes = input_shapes(model)
    samples = split_samples(read_arrays(data, shapes), shapes)
    quantize(model, samples, out, activations=activations, per_channel=not per_tensor, skip=skip)
    if common.format == "json":
        print_json({"file": str(out), "samples": len(samples), "bytes": out.stat().st_size})
    else:
        before, after = model.stat().st_size, out.stat().st_size
        say(
            f"{out}: {after / 1e6:.1f} MB ({before / 1e6:.1f} MB before), {len(samples)} samples", quiet=common.is_quiet
        )
