"""The networks: each a function that gives a PyTorch module and its inputs. Nothing is downloaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

Made = tuple[Any, tuple[Any, ...]]  # (torch.nn.Module, inputs)

SMALL = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 512,
}
GQA = {**SMALL, "num_key_value_heads": 2}
IMAGE = {
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 192,
    "image_size": 64,
}
WHISPER = {
    "d_model": 96,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 192,
    "max_source_positions": 100,
}
TEXT_INPUTS = ("input_ids",)

# package "transformers": model class, sizes of its configuration, inputs
TRANSFORMERS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "bert": ("BertModel", SMALL, ("input_ids", "attention_mask")),
    "roberta": ("RobertaModel", {**SMALL, "pad_token_id": 1}, ("input_ids", "attention_mask")),
    "distilbert": (
        "DistilBertModel",
        {"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256, "vocab_size": 512},
        TEXT_INPUTS,
    ),
    "electra": ("ElectraModel", {**SMALL, "embedding_size": 64}, ("input_ids", "attention_mask")),
    "albert": ("AlbertModel", {**SMALL, "embedding_size": 64}, ("input_ids", "attention_mask")),
    "deberta": ("DebertaV2Model", SMALL, ("input_ids", "attention_mask")),
    "mpnet": ("MPNetModel", SMALL, ("input_ids", "attention_mask")),
    "squeezebert": ("SqueezeBertModel", {**SMALL, "embedding_size": 128}, ("input_ids", "attention_mask")),
    "mobilebert": (
        "MobileBertModel",
        {**SMALL, "embedding_size": 64, "intra_bottleneck_size": 64},
        ("input_ids", "attention_mask"),
    ),
    "convbert": ("ConvBertModel", {**SMALL, "embedding_size": 128}, ("input_ids", "attention_mask")),
    "fnet": ("FNetModel", SMALL, TEXT_INPUTS),
    "funnel": (
        "FunnelBaseModel",
        {"block_sizes": [1, 1], "d_model": 128, "n_head": 4, "d_head": 32, "d_inner": 256, "vocab_size": 512},
        TEXT_INPUTS,
    ),
    "modernbert": ("ModernBertModel", {**SMALL, "pad_token_id": 0}, ("input_ids", "attention_mask")),
    "gpt2": (
        "GPT2Model",
        {"n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 512, "use_cache": False},
        TEXT_INPUTS,
    ),
    "gpt_neo": (
        "GPTNeoModel",
        {
            "hidden_size": 128,
            "num_layers": 2,
            "num_heads": 4,
            "vocab_size": 512,
            "use_cache": False,
            "attention_types": [[["global", "local"], 1]],
        },
        TEXT_INPUTS,
    ),
    "gpt_neox": ("GPTNeoXModel", {**SMALL, "use_cache": False}, TEXT_INPUTS),
    "opt": (
        "OPTModel",
        {
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 256,
            "vocab_size": 512,
            "word_embed_proj_dim": 128,
            "use_cache": False,
        },
        TEXT_INPUTS,
    ),
    "bloom": (
        "BloomModel",
        {"hidden_size": 128, "n_layer": 2, "n_head": 4, "vocab_size": 512, "use_cache": False},
        TEXT_INPUTS,
    ),
    "llama": ("LlamaModel", {**GQA, "use_cache": False}, TEXT_INPUTS),
    "mistral": ("MistralModel", {**GQA, "use_cache": False}, TEXT_INPUTS),
    "qwen2": ("Qwen2Model", {**GQA, "use_cache": False}, TEXT_INPUTS),
    "qwen3": ("Qwen3Model", {**GQA, "head_dim": 32, "use_cache": False}, TEXT_INPUTS),
    "gemma2": ("Gemma2Model", {**GQA, "head_dim": 32, "use_cache": False}, TEXT_INPUTS),
    "phi": ("PhiModel", {**SMALL, "use_cache": False}, TEXT_INPUTS),
    "mamba": (
        "MambaModel",
        {"hidden_size": 64, "num_hidden_layers": 1, "state_size": 8, "vocab_size": 512, "use_cache": False},
        TEXT_INPUTS,
    ),
    "t5_encoder": (
        "T5EncoderModel",
        {"d_model": 128, "num_layers": 2, "num_heads": 4, "d_ff": 256, "d_kv": 32, "vocab_size": 512},
        TEXT_INPUTS,
    ),
    "bart": (
        "BartModel",
        {
            "d_model": 128,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 256,
            "decoder_ffn_dim": 256,
            "vocab_size": 512,
            "use_cache": False,
        },
        ("input_ids", "attention_mask"),
    ),
    "vit": ("ViTModel", {**IMAGE, "patch_size": 16}, ("pixel_values",)),
    "deit": ("DeiTModel", {**IMAGE, "patch_size": 16}, ("pixel_values",)),
    "beit": ("BeitModel", {**IMAGE, "patch_size": 16}, ("pixel_values",)),
    "dinov2": ("Dinov2Model", {**IMAGE, "patch_size": 16}, ("pixel_values",)),
    "swin": (
        "SwinModel",
        {"image_size": 64, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        ("pixel_values",),
    ),
    "segformer": ("SegformerModel", {}, ("pixel_values",)),
    "mobilevit": (  # with the usual weights its results are denormal numbers
        "MobileViTModel",
        {"image_size": 64, "initializer_range": 0.2},
        ("pixel_values",),
    ),
    "clip_text": ("CLIPTextModel", {**SMALL, "eos_token_id": 2}, ("input_ids", "attention_mask")),
    "clip_vision": ("CLIPVisionModel", {**IMAGE, "patch_size": 16}, ("pixel_values",)),
    "siglip_vision": ("SiglipVisionModel", {**IMAGE, "patch_size": 16}, ("pixel_values",)),
    "wav2vec2": (
        "Wav2Vec2Model",
        {
            "hidden_size": 96,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "intermediate_size": 192,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        },
        ("input_values",),
    ),
    "whisper_encoder": (
        "WhisperEncoder",
        {**WHISPER, "encoder_layers": 1},
        ("input_features",),
    ),
    "whisper": (
        "WhisperModel",
        {
            **WHISPER,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 192,
            "vocab_size": 512,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
            "use_cache": False,
        },
        ("input_features", "decoder_input_ids"),
    ),
    "t5": (
        "T5Model",
        {
            "d_model": 128,
            "num_layers": 1,
            "num_decoder_layers": 1,
            "num_heads": 4,
            "d_ff": 256,
            "d_kv": 32,
            "vocab_size": 512,
            "use_cache": False,
        },
        ("input_ids", "decoder_input_ids"),
    ),
    "rwkv": (
        "RwkvModel",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "attention_hidden_size": 64,
            "vocab_size": 512,
            "context_length": 64,
            "use_cache": False,
        },
        TEXT_INPUTS,
    ),
    "mamba2": (
        "Mamba2Model",
        {
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "num_heads": 8,
            "head_dim": 16,
            "state_size": 16,
            "n_groups": 1,
            "chunk_size": 8,
            "vocab_size": 512,
            "use_cache": False,
        },
        TEXT_INPUTS,
    ),
    "gemma3": ("Gemma3TextModel", {**GQA, "head_dim": 32, "use_cache": False, "pad_token_id": 0}, TEXT_INPUTS),
    "mixtral": ("MixtralModel", {**GQA, "num_local_experts": 4, "use_cache": False}, TEXT_INPUTS),
    "xlnet": (
        "XLNetModel",
        {"d_model": 128, "n_layer": 2, "n_head": 4, "d_inner": 256, "vocab_size": 512},
        TEXT_INPUTS,
    ),
    "esm": (
        "EsmModel",
        {**SMALL, "pad_token_id": 1, "mask_token_id": 4, "position_embedding_type": "rotary"},
        ("input_ids", "attention_mask"),
    ),
    "clip": (
        "CLIPModel",
        {
            "text_config": {**SMALL, "eos_token_id": 2},
            "vision_config": {**IMAGE, "patch_size": 16},
            "projection_dim": 64,
        },
        ("input_ids", "pixel_values", "attention_mask"),
    ),
    "perceiver": (
        "PerceiverModel",
        {
            "d_model": 64,
            "num_latents": 16,
            "d_latents": 64,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
        },
        ("inputs",),
    ),
    "wavlm": (
        "WavLMModel",
        {
            "hidden_size": 96,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "intermediate_size": 192,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        },
        ("input_values",),
    ),
    "convnextv2": (
        "ConvNextV2Model",
        {"hidden_sizes": [16, 32, 64, 96], "depths": [1, 1, 1, 1]},
        ("pixel_values",),
    ),
    "sam_vision": (
        "SamVisionModel",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "mlp_dim": 128,
            "image_size": 64,
            "patch_size": 8,
            "window_size": 3,
            "global_attn_indexes": [1],
            "output_channels": 32,
        },
        ("pixel_values",),
    ),
    "detr": (
        "DetrModel",
        {
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 16,
                "hidden_sizes": [16, 32, 48, 64],
                "depths": [1, 1, 1, 1],
                "layer_type": "basic",
                "out_features": ["stage4"],
            },
            "d_model": 64,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "num_queries": 12,
        },
        ("pixel_values",),
    ),
    "dpt": (
        "DPTForDepthEstimation",
        {
            **IMAGE,
            "num_hidden_layers": 4,
            "patch_size": 16,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [16, 24, 32, 48],
            "fusion_hidden_size": 32,
            "is_hybrid": False,
        },
        ("pixel_values",),
    ),
    "patchtst": (
        "PatchTSTModel",
        {
            "num_input_channels": 3,
            "context_length": 64,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "ffn_dim": 64,
        },
        ("past_values",),
    ),
}
TIMM = {
    "timm_resnet26d": "resnet26d",
    "timm_mobilenetv3": "mobilenetv3_small_100",
    "timm_efficientnet": "efficientnet_b0",
    "timm_convnext": "convnext_atto",
    "timm_edgenext": "edgenext_xx_small",
    "timm_ghostnet": "ghostnet_100",
    "timm_regnet": "regnety_002",
    "timm_xcit": "xcit_nano_12_p16_224",
    "timm_vit": "vit_tiny_patch16_224",
    "timm_mixer": "mixer_s32_224",
    "timm_poolformer": "poolformer_s12",
    "timm_coat": "coat_lite_tiny",
    "timm_levit": "levit_128s",
    "timm_repvgg": "repvgg_a0",
    "timm_hrnet": "hrnet_w18_small",
    "timm_densenet": "densenet121",
    "timm_dla": "dla34",
    "timm_maxvit": "maxvit_pico_rw_256",
    "timm_efficientvit": "efficientvit_b0",
    "timm_mobilenetv4": "mobilenetv4_conv_small",
    "timm_tinyvit": "tiny_vit_5m_224",
}
TORCHVISION = {
    "tv_resnet18": "resnet18",
    "tv_squeezenet": "squeezenet1_1",
    "tv_shufflenet": "shufflenet_v2_x0_5",
    "tv_mnasnet": "mnasnet0_5",
    "tv_googlenet": "googlenet",
    "tv_swin": "swin_t",
    "tv_vgg": "vgg11",
}
DIFFUSERS = ("unet", "vae_decoder", "dit")
N_TOKENS, SIDE = 16, 64
CREATED_AT = {
    "timm_xcit": 224,
    "timm_vit": 224,
    "timm_mixer": 224,
    "timm_levit": 224,
    "timm_coat": 224,
    "timm_maxvit": 256,
    "timm_tinyvit": 224,
}


def names() -> tuple[str, ...]:
    """All networks, by package."""
    return (*TRANSFORMERS, *TIMM, *TORCHVISION, *DIFFUSERS)


def make(name: str) -> Made:
    """The network in evaluation mode and its inputs, from fixed seeds. Raises KeyError for an unknown name."""
    import torch

    torch.manual_seed(0)
    if name in TRANSFORMERS:
        module, inputs = _transformers(name)
    elif name in TIMM:
        module, inputs = importlib.import_module("timm").create_model(TIMM[name], pretrained=False), _image(name)
    elif name in TORCHVISION:
        options = {"init_weights": False, "aux_logits": False} if name == "tv_googlenet" else {}
        models = importlib.import_module("torchvision.models")
        module, inputs = getattr(models, TORCHVISION[name])(weights=None, **options), _image(name)
    else:
        module, inputs = _MAKERS[name]()
    _wake(module)
    return module.eval(), inputs


def _wake(module: Any) -> None:
    """Draw the parameters anew that are (nearly) zero at the start of a training: what they scale would not be seen."""
    import torch

    with torch.no_grad():
        for name, p in module.named_parameters():
            if not p.numel() or p.abs().max() >= 1e-3:
                continue
            if p.ndim > 1:
                torch.nn.init.kaiming_uniform_(p)
            elif name.endswith("bias"):
                p.uniform_(0, 0.2)  # above zero: what a last relu is given should not be negative everywhere
            else:  # scales of layers and of norms
                p.uniform_(0.1, 0.5)


def _image(name: str) -> tuple[Any, ...]:
    import torch

    side = CREATED_AT.get(name, SIDE)
    return (torch.randn(1, 3, side, side),)


def _transformers(name: str) -> Made:
    import torch
    import transformers

    kind, sizes, wanted = TRANSFORMERS[name]
    model_class = getattr(transformers, kind, None)
    if model_class is None:
        package = {"WhisperEncoder": "whisper", "SamVisionModel": "sam"}[kind]
        model_class = getattr(importlib.import_module(f"transformers.models.{package}.modeling_{package}"), kind)
    model = model_class(model_class.config_class(**sizes))
    has_side = getattr(model.config, "image_size", SIDE)
    side = has_side if isinstance(has_side, int) else SIDE
    values = {
        "input_ids": torch.randint(3, 500, (1, N_TOKENS)),
        "attention_mask": torch.ones(1, N_TOKENS, dtype=torch.int64),
        "pixel_values": torch.randn(1, 3, side, side),
        "input_values": torch.randn(1, 3200),
        "input_features": torch.randn(1, 80, 200),
        "decoder_input_ids": torch.randint(3, 500, (1, 7)),
        "inputs": torch.randn(1, 20, 64),
        "past_values": torch.randn(1, 64, 3),
    }
    return _Plain.of(model, wanted), tuple(values[w] for w in wanted)


class _Plain:
    """A Transformers model as a module of positional inputs that gives a tuple of its tensors."""

    @staticmethod
    def of(model: Any, wanted: tuple[str, ...]) -> Any:
        import torch

        class Plain(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, *inputs: Any) -> Any:
                result = self.model(**dict(zip(wanted, inputs, strict=True)), return_dict=True)
                return tuple(v for v in result.values() if isinstance(v, torch.Tensor))

        return Plain()


def _unet() -> Made:
    import torch
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=32, attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        norm_num_groups=8,
    )  # fmt: skip
    return _first(model), (torch.randn(1, 4, 16, 16), torch.tensor([10]), torch.randn(1, 8, 32))


def _vae_decoder() -> Made:
    import torch
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=8, layers_per_block=1,
    )  # fmt: skip
    return model.decoder, (torch.randn(1, 4, 8, 8),)


def _dit() -> Made:
    import torch
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=8, num_embeds_ada_norm=10
    )
    return _first(model), (torch.randn(1, 4, 8, 8), torch.tensor([10]), torch.tensor([3]))


def _first(model: Any) -> Any:
    """The first value of what a diffusers model gives."""
    import torch

    is_dit = type(model).__name__.startswith("DiT")

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, sample: Any, timestep: Any, context: Any) -> Any:
            if is_dit:
                return self.model(sample, timestep, class_labels=context, return_dict=False)[0]
            return self.model(sample, timestep, context, return_dict=False)[0]

    return First()


_MAKERS: dict[str, Callable[[], Made]] = {"unet": _unet, "vae_decoder": _vae_decoder, "dit": _dit}
