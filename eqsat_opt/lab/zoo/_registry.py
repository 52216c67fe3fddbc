"""The models of the zoo and their descriptions, without the cost of importing their builders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["RECIPES", "Description", "Recipe", "Size"]

Size = int | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Description:
    """A model of the zoo at full size.

    Attributes:
        name: name for `build`, and on the command line after `zoo:`.
        title: name for people.
        source: origin of the definition.
        summary: its use, and its differences from namesakes.
        n_operators: number of ONNX nodes.
        n_params: number of floating-point weights.
    """

    name: str
    title: str
    source: str
    summary: str
    n_operators: int
    n_params: int


@dataclass(frozen=True)
class Recipe:
    """A recipe for a model: a function of the seed and sizes, and the sizes of its tiny twin."""

    description: Description
    module: str
    tiny: Mapping[str, Size]


def _recipe(module: str, tiny: Mapping[str, Size], **description: Any) -> Recipe:
    return Recipe(Description(**description), module, tiny)


_ALL = (
    _recipe(
        "squeezenet",
        {"image_size": 78, "width": 4, "classes": 12},
        name="squeezenet",
        title="SqueezeNet 1.0, complex bypass",
        source="MetaFlow code/squeezenet.h",
        summary="Fire modules with sibling 1x1 and 3x3 convolutions; 222x222 image.",
        n_operators=80,
        n_params=1_589_672,
    ),
    _recipe(
        "inception",
        {"image_size": 139, "width": 3},
        name="inception_v3",
        title="Inception-v3",
        source="TASO examples/inceptionv3.py",
        summary="Eleven branching blocks, flat concatenations, no classifier; 299x299 image.",
        n_operators=213,
        n_params=21_768_352,
    ),
    _recipe(
        "resnet",
        {"image_size": 64, "width": 8, "blocks": (1, 2, 1, 1), "classes": 12},
        name="resnet50",
        title="ResNet-50",
        source="torchvision resnet50 (He et al. 2016, stride on the 3x3)",
        summary="Bottleneck residual network, batch normalization folded; 224x224 image.",
        n_operators=122,
        n_params=25_530_472,
    ),
    _recipe(
        "resnet",
        {"image_size": 64, "width": 8, "blocks": (1, 2, 1, 1), "classes": 12},
        name="resnet50_bn",
        title="ResNet-50 with batch normalization",
        source="torchvision resnet50 (He et al. 2016, stride on the 3x3)",
        summary="As resnet50, with explicit BatchNormalization nodes.",
        n_operators=175,
        n_params=25_610_152,
    ),
    _recipe(
        "resnet",
        {"image_size": 64, "width": 16, "blocks": (1, 2, 1, 1), "groups": 4},
        name="resnext50",
        title="ResNeXt-50, 32 groups",
        source="TASO examples/resnext50.py",
        summary="Grouped convolutions, rectified projections, no classifier; 224x224 image.",
        n_operators=123,
        n_params=22_945_792,
    ),
    _recipe(
        "nasnet",
        {"image_size": 64, "channels": 16, "cells": 2, "stages": 2},
        name="nasnet_a",
        title="NasNet-A",
        source="TASO examples/nasnet_a.py",
        summary="Eighteen cells of separable convolutions and pools; 224x224 image.",
        n_operators=420,
        n_params=39_913_856,
    ),
    _recipe(
        "vgg",
        {"image_size": 64, "width": 4, "hidden": 24, "classes": 12},
        name="vgg19",
        title="VGG-19",
        source="torchvision vgg19 (Simonyan and Zisserman 2015)",
        summary="Plain chain of 3x3 convolutions; 224x224 image.",
        n_operators=43,
        n_params=143_667_240,
    ),
    _recipe(
        "alexnet",
        {"image_size": 99, "width": 4, "hidden": 24, "classes": 12},
        name="alexnet",
        title="AlexNet",
        source="Krizhevsky et al. 2012, one 227x227 image",
        summary="Two local response normalizations and two-group convolutions.",
        n_operators=21,
        n_params=60_965_224,
    ),
    _recipe(
        "bert",
        {"layers": 2, "hidden": 16, "heads": 4, "feed_forward": 32, "tokens": 8},
        name="bert",
        title="BERT encoder, 6 layers",
        source="Devlin et al. 2019 (base widths)",
        summary="Post-norm encoder with softmax, erf GELU, LayerNormalization; 128 tokens.",
        n_operators=193,
        n_params=42_524_164,
    ),
    _recipe(
        "bert",
        {"layers": 2, "hidden": 16, "heads": 4, "tokens": 8},
        name="bert_taso",
        title="BERT in TASO's form",
        source="TASO examples/bert.py, corrected",
        summary="Eight layers of attention without softmax; the script's dead attention lives.",
        n_operators=129,
        n_params=33_554_432,
    ),
    _recipe(
        "bert",
        {"layers": 4, "hidden": 16, "heads": 4, "feed_forward": 32, "tokens": 8},
        name="bert_deep",
        title="BERT encoder, 200 layers",
        source="ours, for scale",
        summary="Narrow encoder of 5,600 operators.",
        n_operators=5_600,
        n_params=9_984_001,
    ),
    _recipe(
        "recurrent",
        {"steps": 3, "hidden": 16},
        name="sru",
        title="SRU, 20 steps",
        source="MetaFlow code/sru.h, hidden 512 for its 1024",
        summary="Unrolled recurrent layer; three weights shared by all steps.",
        n_operators=220,
        n_params=786_432,
    ),
    _recipe(
        "recurrent",
        {"steps": 2, "hidden": 16},
        name="nasrnn",
        title="NasRNN, 5 steps",
        source="TASO examples/nasrnn.py",
        summary="Unrolled searched cell; sixteen weights shared by all steps.",
        n_operators=230,
        n_params=4_194_816,
    ),
    _recipe(
        "lora",
        {"hidden": 16, "heads": 4, "feed_forward": 32, "tokens": 8, "rank": 3},
        name="lora",
        title="Transformer block with LoRA adapters",
        source="Hu et al. 2021 on a BERT-base layer",
        summary="Six linear maps xW + (xA)B of rank 16 that fold into their weights.",
        n_operators=50,
        n_params=7_308_292,
    ),
    _recipe(
        "linear_attention",
        {"heads": 2, "tokens": 16, "size": 4},
        name="linear_attention",
        title="Linear attention",
        source="Katharopoulos et al. 2020, without feature map",
        summary="(QKᵀ)V with 512 tokens and 8 heads of 64; Q(KᵀV) is far cheaper.",
        n_operators=4,
        n_params=1,
    ),
    _recipe(
        "chain",
        {"rows": 4, "width": 16},
        name="weight_chain",
        title="Weight chain",
        source="ours",
        summary="Two matrix products in a row that fold into one.",
        n_operators=2,
        n_params=2_097_152,
    ),
    _recipe(
        "inception",
        {"width": 3},
        name="inception_e",
        title="Block E of Inception-v3",
        source="OCGGS examples/inceptionv3E.py",
        summary="n blocks (1) with sibling 1x3 and 3x1 convolutions and a max pool; 8x8 features.",
        n_operators=22,
        n_params=5_041_344,
    ),
    _recipe(
        "resnet",
        {"n": 2, "channels": 8, "image_size": 6},
        name="ocggs_resnet",
        title="Residual blocks of OCGGS",
        source="OCGGS examples/resnet.py",
        summary="n blocks (8) whose 3x3 and 1x1 convolutions can merge; 14x14 features.",
        n_operators=56,
        n_params=9_967_616,
    ),
    _recipe(
        "resnet",
        {"image_size": 64, "width": 8, "blocks": (1, 2, 1, 1), "classes": 12},
        name="resnet18",
        title="ResNet-18",
        source="torchvision resnet18 (He et al. 2016)",
        summary="Basic residual network, batch normalization folded; 224x224 image.",
        n_operators=49,
        n_params=11_684_712,
    ),
    _recipe(
        "vgg",
        {"image_size": 64, "width": 4, "hidden": 24, "classes": 12},
        name="vgg16",
        title="VGG-16",
        source="torchvision vgg16 (Simonyan and Zisserman 2015)",
        summary="Plain chain of 3x3 convolutions; 224x224 image.",
        n_operators=37,
        n_params=138_357_544,
    ),
    _recipe(
        "nasnet",
        {"image_size": 6, "channels": 6},
        name="nasnet_cell",
        title="NasNet-A, one normal cell",
        source="TASO examples/nasnet_a.py; AutoGraph, Fig. 8",
        summary="Branches of depthwise convolutions and pools; two 28x28 inputs.",
        n_operators=23,
        n_params=121_984,
    ),
    _recipe(
        "bert",
        {"layers": 1, "hidden": 16, "heads": 4, "feed_forward": 32, "tokens": 8},
        name="bert_full",
        title="BERT-full of Collage",
        source="Collage bert_full.py",
        summary="Eight pre-norm layers, norms spelled in operators; 64 tokens.",
        n_operators=378,
        n_params=6_316_547,
    ),
    _recipe(
        "recurrent",
        {"hidden": 16},
        name="sru_step",
        title="SRU, one step",
        source="OCGGS examples/sru.py, length 1",
        summary="Three products of one input and five gates; small enough for every search.",
        n_operators=11,
        n_params=3_145_728,
    ),
    _recipe(
        "recurrent",
        {"steps": 2, "hidden": 16},
        name="rnntc",
        title="Text classifier on an SRU, 20 steps",
        source="MetaFlow, Table 1 and section 3; Lei et al. 2017",
        summary="Gates as x·y + (1 - x)·z, of which MetaFlow saves one operator each.",
        n_operators=265,
        n_params=3_162_129,
    ),
    _recipe(
        "dcgan",
        {"noise": 12, "width": 2, "size": 4},
        name="dcgan",
        title="DCGAN, generator and discriminator",
        source="Collage dcgan.py",
        summary="Upsamplings and strided convolutions around a 256x256 image.",
        n_operators=23,
        n_params=53_306_404,
    ),
    _recipe(
        "training",
        {"batch": 5, "features": 9, "hidden": (8,), "classes": 4},
        name="mlp_training",
        title="Training step of a perceptron",
        source="ours; MetaFlow, section 2, on training graphs",
        summary="Loss and derivatives of three layers, batch 64; weights are inputs.",
        n_operators=31,
        n_params=4,
    ),
    _recipe(
        "training",
        {"batch": 3, "image_size": 8, "channels": (4, 6), "classes": 4},
        name="cnn_training",
        title="Training step of a convolutional network",
        source="ours; MetaFlow, section 2, on training graphs",
        summary="Loss and derivatives of three convolutions, batch 8; weights are inputs.",
        n_operators=48,
        n_params=6,
    ),
)

RECIPES: Mapping[str, Recipe] = {recipe.description.name: recipe for recipe in _ALL}
