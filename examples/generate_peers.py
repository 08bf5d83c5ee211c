"""The decoder of `examples.generate` in ONNX Runtime and in llama.cpp, as far as they are installed."""

from __future__ import annotations

import io
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from examples.decoder import Decoder, Generator, Step, Writes, example

if TYPE_CHECKING:
    import onnx

BLOCK = 32  # weights that share a scale


class NotOfferedError(Exception):
    """What a peer does not offer."""


def onnx_runtime(decoder: Decoder, prompt: int, kind: str) -> Writes:
    """One thread of ONNX Runtime. Raises ImportError where it or the exporter is not installed, NotOfferedError."""
    if kind == "bf16":
        raise NotOfferedError("ONNX Runtime has no bfloat16 products on CPUs")
    bits = int(kind[3:]) if kind.startswith("int") else 0
    return Generator(decoder.shape, *(_onnx_step(decoder, steps, bits) for steps in (prompt, 1))).run


def _onnx_step(decoder: Decoder, steps: int, bits: int) -> Step:
    import onnx
    import onnxruntime
    import onnxscript  # noqa: F401

    logging.disable(logging.INFO)  # the quantiser tells of every node

    file = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(decoder.eval(), example(decoder.shape, steps), dynamo=True, verbose=False).save(file)
    data = file.getvalue()
    if bits:
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        model = _without_gemm(onnx.load_from_string(data))
        quantiser = MatMulNBitsQuantizer(model, bits=bits, block_size=BLOCK, is_symmetric=True)
        quantiser.process()
        data = quantiser.model.model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=False)))  # type: ignore[return-value]


def _without_gemm(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with MatMul and Add for each Gemm of a constant weight: the quantiser knows MatMul alone."""
    from onnx import helper, numpy_helper

    weights = {w.name: w for w in model.graph.initializer}
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type != "Gemm":
            model.graph.node.append(node)
            continue
        x, weight, *bias = node.input
        turned = numpy_helper.to_array(weights[weight]).T.copy()
        model.graph.initializer.append(numpy_helper.from_array(turned, f"{weight}_turned_{node.output[0]}"))
        product = f"{node.output[0]}_product" if bias else node.output[0]
        model.graph.node.append(helper.make_node("MatMul", [x, f"{weight}_turned_{node.output[0]}"], [product]))
        if bias:
            model.graph.node.append(helper.make_node("Add", [product, bias[0]], [node.output[0]]))
    return model


def llama_cpp(decoder: Decoder, prompt: int, kind: str) -> Writes:
    """One thread of llama.cpp. Raises ImportError where `llama-cpp-python` or `gguf` is missing, NotOfferedError.

    It runs without its "extra buffer types", which keep weights in another order: beside PyTorch, tile registers (AMX)
    end the process of llama-cpp-python 0.3.36 with an illegal instruction.
    """
    import llama_cpp as api

    if decoder.shape.style != "llama":
        raise NotOfferedError("written for the llama style alone")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.gguf"
        write_gguf(decoder, kind, path)
        api.llama_log_set(_silent(api), None)
        api.llama_backend_init()
        loading = api.llama_model_default_params()
        loading.use_extra_bufts = False
        model = api.llama_model_load_from_file(str(path).encode(), loading)
    if not model:
        raise RuntimeError("llama.cpp does not load the file")
    params = api.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = decoder.shape.capacity, 512, 1, 1
    context = api.llama_init_from_model(model, params)
    n_words = decoder.shape.words

    def run(words: list[int], count: int) -> tuple[list[int], float, float]:
        api.llama_memory_clear(api.llama_get_memory(context), True)
        found: list[int] = []
        spent = [0.0, 0.0]
        for turn in range(count):
            new = words if turn == 0 else found[-1:]
            start = time.perf_counter()
            tokens = (api.llama_token * len(new))(*new)  # a batch only points to them
            if status := api.llama_decode(context, api.llama_batch_get_one(tokens, len(new))):
                raise RuntimeError(f"llama.cpp does not decode: {status}")
            scores = np.ctypeslib.as_array(api.llama_get_logits_ith(context, -1), (n_words,))
            found.append(int(scores.argmax()))
            spent[turn > 0] += time.perf_counter() - start
        return found, spent[0], spent[1]

    return run


_kept: list[object] = []  # the function that llama.cpp calls for its messages


def _silent(api: object) -> object:
    if not _kept:
        _kept.append(api.llama_log_callback(lambda *_: None))  # type: ignore[attr-defined]
    return _kept[0]


def write_gguf(decoder: Decoder, kind: str, path: Path) -> None:
    """Write the decoder as llama.cpp reads it. Raises ImportError where `gguf` is missing."""
    import gguf

    types = gguf.GGMLQuantizationType
    stored = {"float32": types.F32, "bf16": types.BF16, "int8": types.Q8_0, "int4": types.Q4_0}[kind]
    shape, writer = decoder.shape, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(shape.capacity)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(4 * shape.width)
    writer.add_head_count(shape.heads)
    writer.add_rope_dimension_count(shape.head)
    writer.add_layer_norm_rms_eps(float(np.finfo(np.float32).eps))
    writer.add_vocab_size(shape.words)
    writer.add_tokenizer_model("no_vocab")

    def put(name: str, tensor: torch.Tensor) -> None:
        array = tensor.detach().numpy().astype(np.float32)
        if array.ndim == 1:
            writer.add_tensor(f"{name}.weight", array)
        else:
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(array, stored), raw_dtype=stored)

    def in_pairs(rows: torch.Tensor) -> torch.Tensor:
        """Rows of queries and keys as llama.cpp turns them: elements next to each other, not half a head apart."""
        parts = rows.reshape(shape.heads, 2, shape.head // 2, shape.width)
        return parts.transpose(1, 2).reshape(rows.shape)

    put("token_embd", decoder.embed.weight)
    put("output_norm", decoder.norm.weight)
    put("output", decoder.head.weight)
    for n, layer in enumerate(decoder.layers):
        q, k, v = layer.qkv.weight.split(shape.width)
        parts = {
            "attn_norm": layer.before.weight, "attn_q": in_pairs(q), "attn_k": in_pairs(k), "attn_v": v,
            "attn_output": layer.out.weight, "ffn_norm": layer.between.weight, "ffn_gate": layer.gate.weight,
            "ffn_up": layer.up.weight, "ffn_down": layer.down.weight,
        }  # fmt: skip
        for name, tensor in parts.items():
            put(f"blk.{n}.{name}", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


PEERS: dict[str, Callable[[Decoder, int, str], Writes]] = {"onnxruntime": onnx_runtime, "llama.cpp": llama_cpp}
