"""Decoders whose keys and values of former tokens are inputs, and of all tokens outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from benchmarks.exported.module import Builder, Exportable, randomise

__all__ = ["DECODERS", "VOCABULARY"]

VOCABULARY = 512
_BATCH, _PAST, _NEW = 2, 5, 3
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.1,
    "attention_dropout": 0.0,
}
_GROUPED = {"intermediate_size": 128, "num_key_value_heads": 2}
_EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}
_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _GROUPED),
    "qwen2": ("Qwen2", _GROUPED),
    "qwen3": ("Qwen3", {**_GROUPED, "head_dim": 16}),
    "gemma": ("Gemma", {**_GROUPED, "head_dim": 16}),
    "mistral": ("Mistral", {**_GROUPED, "sliding_window": None}),
    "phi": ("Phi", {"intermediate_size": 128, "num_key_value_heads": 4}),
    "gpt_neox": ("GPTNeoX", {"intermediate_size": 128}),
    "gpt2": ("GPT2", {}),
    "opt": ("OPT", {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    "bloom": ("Bloom", {}),
    "mixtral": ("Mixtral", {**_GROUPED, **_EXPERTS, "sliding_window": None}),
    "gemma2": ("Gemma2", {**_GROUPED, "head_dim": 16, "sliding_window": 128}),
    "phi3": ("Phi3", _GROUPED),
    "falcon": ("Falcon", {"ffn_hidden_size": 128}),
    "stablelm": ("StableLm", _GROUPED),
    "starcoder2": ("Starcoder2", {**_GROUPED, "sliding_window": None}),
    "olmo": ("Olmo", _GROUPED),
    "olmo2": ("Olmo2", _GROUPED),
    "cohere": ("Cohere", _GROUPED),
    "gptj": ("GPTJ", {"rotary_dim": 8}),
    "codegen": ("CodeGen", {"rotary_dim": 8}),
    "gpt_neo": ("GPTNeo", {"attention_types": [[["global"], 2]], "intermediate_size": 128}),
    "gpt_bigcode": ("GPTBigCode", {}),
    "smollm3": ("SmolLM3", _GROUPED),
    "granite": ("Granite", _GROUPED),
    "glm": ("Glm", {**_GROUPED, "head_dim": 16}),
    "nemotron": ("Nemotron", _GROUPED),
    "qwen2_moe": ("Qwen2Moe", {**_GROUPED, **_EXPERTS, "moe_intermediate_size": 64}),
    "persimmon": ("Persimmon", {"intermediate_size": 128}),
    "mpt": ("Mpt", {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 256}),
}


class _Cached(nn.Module):
    """A decoder of ids, a mask over former and new tokens, and keys and values by layer."""

    def __init__(self, model: nn.Module, layers: int) -> None:
        super().__init__()
        self.model = model
        self.layers = layers

    def forward(self, ids: Tensor, mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        cache = transformers.DynamicCache()
        for layer in range(self.layers):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(
            input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True
        )
        present = [t for layer in result.past_key_values.layers for t in (layer.keys, layer.values)]
        return (result.logits, *present)


def _decoder(family: str) -> Exportable:
    name, own = _FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**{**_COMMON, **own})
    # Neither exporter writes fused attention, nor grouped products of experts, at every opset.
    config._attn_implementation = "eager"
    config._experts_implementation = "batched_mm"
    torch.manual_seed(0)
    model = randomise(transformers.AutoModelForCausalLM.from_config(config))
    with torch.no_grad():
        first = model(
            torch.randint(3, VOCABULARY, (_BATCH, _PAST)),
            attention_mask=torch.ones(_BATCH, _PAST, dtype=torch.long),
            use_cache=True,
        ).past_key_values
    past: Sequence[Tensor] = [t for layer in first.layers for t in (layer.keys, layer.values)]
    layers = len(past) // 2
    kinds = [f"{i}.{kind}" for i in range(layers) for kind in ("key", "value")]
    inputs = {
        "input_ids": torch.randint(3, VOCABULARY, (_BATCH, _NEW)),
        "attention_mask": torch.ones(_BATCH, _PAST + _NEW, dtype=torch.long),
        **{f"past_key_values.{kind}": t for kind, t in zip(kinds, past, strict=True)},
    }
    outputs = ["logits", *(f"present.{kind}" for kind in kinds)]
    total = "past_sequence_length + sequence_length"
    return Exportable(
        _Cached(model, layers),
        inputs,
        {
            "input_ids": {0: "batch_size", 1: "sequence_length"},
            "attention_mask": {0: "batch_size", 1: total},
            **{
                f"past_key_values.{kind}": {0: "batch_size", 2: "past_sequence_length"}
                for kind in kinds
            },
        },
        outputs,
        {
            "logits": {0: "batch_size", 1: "sequence_length"},
            **{name: {0: "batch_size", 2: total} for name in outputs[1:]},
        },
    )


DECODERS: dict[str, Builder] = {
    f"{family}_cached": partial(_decoder, family) for family in _FAMILIES
}
"""Builders by name."""
