"""Models of images from timm and transformers, at symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import transformers

from benchmarks.exported.module import Builder, Exportable, Keywords, randomise
from benchmarks.exported.stand_in import load_timm

__all__ = ["PICTURES"]

_BATCH, _SIZE = 2, 64
_NARROW = {"channels": (16, 32, 64, 128)}
# Name in timm to settings, and whether height and width may be symbolic.
_TIMM: dict[str, tuple[dict[str, Any], bool]] = {
    "resnet18": (_NARROW, True),
    "resnest14d": (_NARROW, True),
    "res2net50_14w_8s": (_NARROW, False),
    "ghostnet_050": ({}, True),
    "efficientnet_b0": ({}, False),
    "mobilenetv2_050": ({}, True),
    "mobilenetv3_small_050": ({}, True),
    "mobilenetv4_conv_small_050": ({}, False),
    "mnasnet_small": ({}, True),
    "regnetx_002": ({}, True),
    "regnety_002": ({}, False),
    "densenet121": ({"block_config": (2, 2, 2, 2)}, False),
    "convnext_atto": ({"depths": (1, 1, 2, 1)}, True),
    "convnextv2_atto": ({"depths": (1, 1, 2, 1)}, False),
    "edgenext_xx_small": ({"depths": (1, 1, 2, 1)}, False),
    "mobilevit_xxs": ({}, False),
    "mobilevitv2_050": ({}, False),
    "mobileone_s0": ({}, False),
    "hardcorenas_a": ({}, False),
    "tinynet_e": ({}, True),
    "lcnet_050": ({}, True),
    "dla46_c": ({}, False),
    "skresnet18": (_NARROW, False),
    "vit_tiny_patch16_224": ({"img_size": 64, "depth": 2}, False),
    "vit_dynamic": ({"img_size": 64, "depth": 2, "dynamic_img_size": True}, True),
    "deit_tiny_distilled_patch16_224": ({"img_size": 64, "depth": 2}, False),
    "beit_base_patch16_224": ({"img_size": 64, "depth": 2, "embed_dim": 64, "num_heads": 4}, False),
    "cait_xxs24_224": ({"img_size": 64, "depth": 2}, False),
    "xcit_nano_12_p16_224": ({"img_size": 64, "depth": 2}, False),
    "swin_tiny_patch4_window7_224": (
        {"img_size": 64, "window_size": 4, "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4)},
        False,
    ),
    "pit_ti_224": ({"img_size": 64}, False),
    "levit_128s": ({"img_size": 64}, False),
    "coat_lite_tiny": ({"img_size": 64}, False),
    "twins_svt_small": ({"img_size": 64, "depths": (1, 1, 1, 1)}, False),
    "pvt_v2_b0": ({}, False),
    "fastvit_t8": ({}, False),
    "repvit_m0_9": ({}, False),
    "efficientformerv2_s0": ({"img_size": 64}, False),
    "hgnetv2_b0": ({}, True),
    "starnet_s1": ({}, True),
    "inception_next_atto": ({}, True),
    "ese_vovnet19b_slim": ({}, False),
}
_SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": _SIZE,
    "patch_size": 16,
    "initializer_range": 0.1,
}
_HIDDEN = ("last_hidden_state",)
# Name to configuration, settings, class, results, and whether height and width may be symbolic.
_TRANSFORMERS: dict[str, tuple[str, dict[str, Any], str, tuple[str, ...], bool]] = {
    "vit": ("ViT", _SMALL, "ViTModel", _HIDDEN, False),
    "deit": ("DeiT", _SMALL, "DeiTModel", _HIDDEN, False),
    "beit": ("Beit", _SMALL, "BeitModel", _HIDDEN, False),
    "dinov2": ("Dinov2", _SMALL, "Dinov2Model", _HIDDEN, True),
    "dinov3": ("DINOv3ViT", _SMALL, "DINOv3ViTModel", _HIDDEN, False),
    "clip_vision": ("CLIPVision", _SMALL, "CLIPVisionModel", _HIDDEN, False),
    "siglip_vision": ("SiglipVision", _SMALL, "SiglipVisionModel", _HIDDEN, False),
    "swin": (
        "Swin",
        {
            "image_size": 64,
            "patch_size": 4,
            "window_size": 4,
            "embed_dim": 32,
            "depths": [2, 2],
            "num_heads": [2, 4],
        },
        "SwinModel",
        _HIDDEN,
        False,
    ),
    "swinv2": (
        "Swinv2",
        {
            "image_size": 64,
            "patch_size": 4,
            "window_size": 4,
            "embed_dim": 32,
            "depths": [2, 2],
            "num_heads": [2, 4],
        },
        "Swinv2Model",
        _HIDDEN,
        False,
    ),
    "segformer": (
        "Segformer",
        {
            "hidden_sizes": [16, 32, 64, 64],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 4, 4],
            "decoder_hidden_size": 64,
            "num_labels": 8,
        },
        "SegformerForSemanticSegmentation",
        ("logits",),
        True,
    ),
    "mobilevit_seg": (
        "MobileViT",
        {
            "image_size": 64,
            "hidden_sizes": [32, 48, 64],
            "neck_hidden_sizes": [8, 16, 24, 32, 48, 64, 128],
            "num_labels": 8,
        },
        "MobileViTForSemanticSegmentation",
        ("logits",),
        False,
    ),
    "dpt": (
        "DPT",
        {
            **_SMALL,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [16, 24, 32, 48],
            "fusion_hidden_size": 32,
            "is_hybrid": False,
        },
        "DPTForDepthEstimation",
        ("predicted_depth",),
        False,
    ),
    "sam_encoder": (
        "SamVision",
        {
            "hidden_size": 64,
            "output_channels": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 96,
            "patch_size": 16,
            "window_size": 3,
            "global_attn_indexes": [1],
            "mlp_dim": 128,
        },
        "SamVisionModel",
        _HIDDEN,
        False,
    ),
    "convnext_hf": (
        "ConvNext",
        {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
        "ConvNextModel",
        ("last_hidden_state", "pooler_output"),
        True,
    ),
    "poolformer_hf": (
        "PoolFormer",
        {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]},
        "PoolFormerModel",
        _HIDDEN,
        True,
    ),
    "yolos": (
        "Yolos",
        {**_SMALL, "image_size": [64, 64], "num_detection_tokens": 10},
        "YolosForObjectDetection",
        ("logits", "pred_boxes"),
        False,
    ),
    "vit_mae": ("ViTMAE", {**_SMALL, "mask_ratio": 0.0}, "ViTMAEModel", _HIDDEN, False),
    "upernet_like_glpn": (
        "GLPN",
        {
            "hidden_sizes": [16, 32, 48, 64],
            "depths": [1, 1, 1, 1],
            "decoder_hidden_size": 32,
            "num_attention_heads": [1, 2, 4, 4],
        },
        "GLPNForDepthEstimation",
        ("predicted_depth",),
        False,
    ),
    "pvt": (
        "Pvt",
        {
            "image_size": 64,
            "hidden_sizes": [16, 32, 48, 64],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 4, 4],
        },
        "PvtModel",
        _HIDDEN,
        False,
    ),
    "superres_swin2sr": (
        "Swin2SR",
        {
            "image_size": 32,
            "embed_dim": 32,
            "depths": [2],
            "num_heads": [2],
            "window_size": 4,
            "upscale": 2,
        },
        "Swin2SRForImageSuperResolution",
        ("reconstruction",),
        False,
    ),
}


def _axes(symbolic_size: bool) -> Mapping[int, str]:
    return {0: "batch", **({2: "height", 3: "width"} if symbolic_size else {})}


def _of_timm(name: str) -> Exportable:
    settings, symbolic_size = _TIMM[name]
    timm = load_timm()
    timm.layers.set_exportable(True)
    torch.manual_seed(0)
    source = "vit_tiny_patch16_224" if name == "vit_dynamic" else name
    module = randomise(timm.create_model(source, num_classes=10, exportable=True, **settings))
    return Exportable(
        module,
        {"pixels": torch.randn(_BATCH, 3, _SIZE, _SIZE)},
        {"pixels": _axes(symbolic_size)},
        output_axes={"output": {0: "batch"}},
    )


def _of_transformers(name: str) -> Exportable:
    config_name, settings, kind, results, symbolic_size = _TRANSFORMERS[name]
    config = getattr(transformers, f"{config_name}Config")(**settings)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    size = 96 if name == "sam_encoder" else 32 if name == "superres_swin2sr" else _SIZE
    return Exportable(
        Keywords(randomise(getattr(transformers, kind)(config)), ("pixel_values",), results),
        {"pixel_values": torch.randn(_BATCH, 3, size, size)},
        {"pixel_values": _axes(symbolic_size)},
        results,
        {result: {0: "batch"} for result in results},
    )


PICTURES: dict[str, Builder] = {
    **{f"hf_{name}": partial(_of_transformers, name) for name in _TRANSFORMERS},
    **{f"timm_{name}": partial(_of_timm, name) for name in _TIMM},
}
"""Builders by name."""
