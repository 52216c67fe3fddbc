"""Models of sound, of time series and of vision with language."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from benchmarks.exported.module import Builder, Exportable, Keywords, randomise

__all__ = ["AUDIO"]

_BATCH = 2
_WAVES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "conv_dim": (16, 16, 32),
    "conv_stride": (5, 4, 2),
    "conv_kernel": (10, 8, 4),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
    "apply_spec_augment": False,
    "initializer_range": 0.1,
}
_WHISPER = {
    "vocab_size": 256,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "num_mel_bins": 16,
    "max_source_positions": 50,
    "max_target_positions": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "init_std": 0.1,
}
_PATCHES = {
    "num_input_channels": 3,
    "context_length": 64,
    "patch_length": 8,
    "patch_stride": 8,
    "d_model": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "ffn_dim": 64,
    "prediction_length": 16,
}
_WAVE_MODELS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "wav2vec2": ("Wav2Vec2", {}, "Wav2Vec2ForCTC", "logits"),
    "wav2vec2_stable": (
        "Wav2Vec2",
        {"do_stable_layer_norm": True, "feat_extract_norm": "layer"},
        "Wav2Vec2Model",
        "last_hidden_state",
    ),
    "hubert": ("Hubert", {}, "HubertModel", "last_hidden_state"),
    "wavlm": (
        "WavLM",
        {"num_buckets": 32, "max_bucket_distance": 80},
        "WavLMModel",
        "last_hidden_state",
    ),
    "sew": ("SEW", {"squeeze_factor": 2}, "SEWModel", "last_hidden_state"),
    "wav2vec2_conformer": (
        "Wav2Vec2Conformer",
        {"position_embeddings_type": "relative"},
        "Wav2Vec2ConformerModel",
        "last_hidden_state",
    ),
    "unispeech": ("UniSpeech", {}, "UniSpeechModel", "last_hidden_state"),
    "data2vec_audio": (
        "Data2VecAudio",
        {"conv_pos_kernel_size": 7, "num_conv_pos_embeddings": 2},
        "Data2VecAudioModel",
        "last_hidden_state",
    ),
}


def _built(name: str, settings: Mapping[str, Any], kind: str) -> nn.Module:
    config = getattr(transformers, f"{name}Config")(**settings)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    return randomise(getattr(transformers, kind)(config))


def _wave(family: str) -> Exportable:
    name, own, kind, result = _WAVE_MODELS[family]
    module = _built(name, {**_WAVES, **own}, kind)
    return Exportable(
        Keywords(module, ("input_values",), (result,)),
        {"input_values": torch.randn(_BATCH, 4000)},
        {"input_values": {0: "batch", 1: "samples"}},
        (result,),
        {result: {0: "batch"}},
    )


def _whisper_encoder() -> Exportable:
    encoder = _built("Whisper", _WHISPER, "WhisperModel").get_encoder()
    return Exportable(
        Keywords(encoder, ("input_features",), ("last_hidden_state",)),
        {"input_features": torch.randn(_BATCH, 16, 100)},
        {"input_features": {0: "batch"}},
        ("last_hidden_state",),
        {"last_hidden_state": {0: "batch"}},
    )


class _WhisperDecoder(nn.Module):
    """Two caches by layer: of tokens, which grows, and of sound, which stays."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, hidden: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        own = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            own.update(past[2 * layer], past[2 * layer + 1], layer)
        cache = transformers.EncoderDecoderCache(own, transformers.DynamicCache())
        result = self.model(
            decoder_input_ids=ids,
            encoder_outputs=(hidden,),
            past_key_values=cache,
            use_cache=True,
        )
        layers = result.past_key_values.self_attention_cache.layers
        return (result.logits, *(t for layer in layers for t in (layer.keys, layer.values)))


def _whisper_decoder() -> Exportable:
    kinds = [f"{layer}.decoder.{kind}" for layer in range(2) for kind in ("key", "value")]
    return Exportable(
        _WhisperDecoder(_built("Whisper", _WHISPER, "WhisperForConditionalGeneration")),
        {
            "input_ids": torch.randint(3, 256, (_BATCH, 3)),
            "encoder_hidden_states": torch.randn(_BATCH, 50, 64),
            **{f"past_key_values.{kind}": torch.randn(_BATCH, 4, 5, 16) for kind in kinds},
        },
        {
            "input_ids": {0: "batch_size", 1: "decoder_sequence_length"},
            "encoder_hidden_states": {0: "batch_size"},
            **{f"past_key_values.{kind}": {0: "batch_size", 2: "past_length"} for kind in kinds},
        },
        ("logits", *(f"present.{kind}" for kind in kinds)),
        {
            "logits": {0: "batch_size", 1: "decoder_sequence_length"},
            **{
                f"present.{kind}": {0: "batch_size", 2: "past_length + decoder_sequence_length"}
                for kind in kinds
            },
        },
    )


def _spectrogram() -> Exportable:
    settings = {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "max_length": 64, "num_mel_bins": 32,
    }  # fmt: skip
    return Exportable(
        Keywords(_built("AST", settings, "ASTForAudioClassification"), ("input_values",),
                 ("logits",)),
        {"input_values": torch.randn(_BATCH, 64, 32)},
        {"input_values": {0: "batch"}},
        ("logits",),
        {"logits": {0: "batch"}},
    )  # fmt: skip


def _series(name: str, kind: str, result: str) -> Exportable:
    return Exportable(
        Keywords(_built(name, _PATCHES, kind), ("past_values",), (result,)),
        {"past_values": torch.randn(_BATCH, 64, 3)},
        {"past_values": {0: "batch"}},
        (result,),
        {result: {0: "batch"}},
    )


def _clip() -> Exportable:
    text = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 128, "max_position_embeddings": 32, "eos_token_id": 2}  # fmt: skip
    vision = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 128, "image_size": 64, "patch_size": 16}  # fmt: skip
    module = _built("CLIP", {"text_config": text, "vision_config": vision, "projection_dim": 32},
                    "CLIPModel")  # fmt: skip
    keywords = ("input_ids", "pixel_values", "attention_mask")
    results = ("logits_per_image", "text_embeds", "image_embeds")
    return Exportable(
        Keywords(module, keywords, results),
        {
            "input_ids": torch.randint(3, 256, (2, 8)),
            "pixel_values": torch.randn(3, 3, 64, 64),
            "attention_mask": torch.ones(2, 8, dtype=torch.long),
        },
        {
            "input_ids": {0: "text_batch", 1: "sequence"},
            "pixel_values": {0: "image_batch"},
            "attention_mask": {0: "text_batch", 1: "sequence"},
        },
        results,
        {"logits_per_image": {0: "image_batch", 1: "text_batch"}},
    )


def _speaker() -> Exportable:
    settings = {"tdnn_dim": (32, 32, 32, 32, 64), "tdnn_kernel": (5, 3, 3, 1, 1),
                "tdnn_dilation": (1, 2, 3, 1, 1), "xvector_output_dim": 32}  # fmt: skip
    return Exportable(
        Keywords(_built("Wav2Vec2", {**_WAVES, **settings}, "Wav2Vec2ForXVector"),
                 ("input_values",), ("logits", "embeddings")),
        {"input_values": torch.randn(_BATCH, 4000)},
        {"input_values": {0: "batch"}},
        ("logits", "embeddings"),
        {"logits": {0: "batch"}, "embeddings": {0: "batch"}},
    )  # fmt: skip


AUDIO: dict[str, Builder] = {
    **{family: partial(_wave, family) for family in _WAVE_MODELS},
    "whisper_encoder": _whisper_encoder,
    "whisper_decoder_cached": _whisper_decoder,
    "ast": _spectrogram,
    "wav2vec2_xvector": _speaker,
    "patchtst": partial(_series, "PatchTST", "PatchTSTForPrediction", "prediction_outputs"),
    "patchtsmixer": partial(
        _series, "PatchTSMixer", "PatchTSMixerForPrediction", "prediction_outputs"
    ),
    "clip": _clip,
}
"""Builders by name."""
