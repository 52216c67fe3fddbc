"""Encoders of text, and encoders with decoders, with symbolic batches and lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from benchmarks.exported.module import Builder, Exportable, Keywords, randomise

__all__ = ["TEXT"]

_VOCABULARY, _BATCH, _LENGTH = 512, 2, 12
_COMMON = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.1,
}
_SEQ2SEQ = {
    "vocab_size": _VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
    "init_std": 0.1,
    "use_cache": False,
}
_T5 = {
    "vocab_size": _VOCABULARY,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "use_cache": False,
}
_HIDDEN, _LOGITS = ("last_hidden_state",), ("logits",)
# Family to its configuration, own settings, class of the model and results.
_ENCODERS: dict[str, tuple[str, dict[str, Any], str, Sequence[str]]] = {
    "bert": ("Bert", {}, "BertModel", ("last_hidden_state", "pooler_output")),
    "bert_mlm": ("Bert", {}, "BertForMaskedLM", _LOGITS),
    "distilbert": (
        "DistilBert",
        {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
        "DistilBertForSequenceClassification",
        _LOGITS,
    ),
    "roberta": ("Roberta", {}, "RobertaForTokenClassification", _LOGITS),
    "xlm_roberta": ("XLMRoberta", {}, "XLMRobertaModel", _HIDDEN),
    "albert": ("Albert", {"embedding_size": 32}, "AlbertModel", _HIDDEN),
    "electra": ("Electra", {"embedding_size": 32}, "ElectraForSequenceClassification", _LOGITS),
    "mpnet": ("MPNet", {}, "MPNetModel", _HIDDEN),
    "deberta_v2": (
        "DebertaV2",
        {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
        "DebertaV2Model",
        _HIDDEN,
    ),
    "deberta": (
        "Deberta",
        {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        "DebertaModel",
        _HIDDEN,
    ),
    "camembert": ("Camembert", {}, "CamembertModel", _HIDDEN),
    "mobilebert": (
        "MobileBert",
        {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
        "MobileBertModel",
        _HIDDEN,
    ),
    "squeezebert": ("SqueezeBert", {"embedding_size": 64}, "SqueezeBertModel", _HIDDEN),
    "roformer": ("RoFormer", {"embedding_size": 64}, "RoFormerModel", _HIDDEN),
    "nystromformer": (
        "Nystromformer",
        {"num_landmarks": 4, "segment_means_seq_len": 12},
        "NystromformerModel",
        _HIDDEN,
    ),
    "fnet": ("FNet", {}, "FNetModel", _HIDDEN),
    "convbert": ("ConvBert", {"embedding_size": 32}, "ConvBertModel", _HIDDEN),
    "modernbert": ("ModernBert", {"local_attention": 16}, "ModernBertModel", _HIDDEN),
    "megatron_bert": ("MegatronBert", {}, "MegatronBertModel", _HIDDEN),
    "ibert": ("IBert", {}, "IBertModel", _HIDDEN),
    "layoutlm": ("LayoutLM", {}, "LayoutLMModel", _HIDDEN),
    "esm": ("Esm", {"position_embedding_type": "rotary"}, "EsmModel", _HIDDEN),
    "nomic_like_gte": ("Ernie", {}, "ErnieModel", _HIDDEN),
    "qwen3_embedding": (
        "Qwen3",
        {"num_key_value_heads": 2, "head_dim": 16, "use_cache": False},
        "Qwen3Model",
        _HIDDEN,
    ),
    "mamba": ("Mamba", {"state_size": 8, "use_cache": False}, "MambaModel", _HIDDEN),
}
_BOTH: dict[str, tuple[str, dict[str, Any], str]] = {
    "t5": ("T5", _T5, "T5ForConditionalGeneration"),
    "mt5": ("MT5", _T5, "MT5ForConditionalGeneration"),
    "bart": ("Bart", _SEQ2SEQ, "BartForConditionalGeneration"),
    "mbart": ("MBart", _SEQ2SEQ, "MBartForConditionalGeneration"),
    "marian": ("Marian", _SEQ2SEQ, "MarianMTModel"),
    "pegasus": ("Pegasus", _SEQ2SEQ, "PegasusForConditionalGeneration"),
    "m2m100": ("M2M100", _SEQ2SEQ, "M2M100ForConditionalGeneration"),
    "blenderbot": ("Blenderbot", _SEQ2SEQ, "BlenderbotForConditionalGeneration"),
}


class _Encoder(nn.Module):
    """The encoder alone, as a file of its own in every deployed translator."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        encoder = self.model.get_encoder()
        return encoder(input_ids=ids, attention_mask=mask).last_hidden_state


class _Decoder(nn.Module):
    """The decoder alone, over what the encoder found."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        return self.model(
            decoder_input_ids=ids,
            encoder_outputs=(hidden,),
            attention_mask=mask,
            use_cache=False,
        ).logits


def _ids(length: int = _LENGTH) -> Tensor:
    return torch.randint(3, _VOCABULARY, (_BATCH, length))


def _model(name: str, settings: Mapping[str, Any], kind: str) -> nn.Module:
    config = getattr(transformers, f"{name}Config")(**settings)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    return randomise(getattr(transformers, kind)(config))


def _encoder(family: str) -> Exportable:
    name, own, kind, results = _ENCODERS[family]
    keywords = ["input_ids", "attention_mask"]
    if family in ("fnet", "mamba"):
        keywords = ["input_ids"]
    examples = {"input_ids": _ids(), "attention_mask": torch.ones(_BATCH, _LENGTH).long()}
    return Exportable(
        Keywords(_model(name, {**_COMMON, **own}, kind), keywords, results),
        {key: examples[key] for key in keywords},
        {key: {0: "batch", 1: "sequence"} for key in keywords},
        results,
        {key: {0: "batch"} for key in results},
    )


def _encoder_alone(family: str) -> Exportable:
    return Exportable(
        _Encoder(_model(*_BOTH[family])),
        {"input_ids": _ids(), "attention_mask": torch.ones(_BATCH, _LENGTH).long()},
        {key: {0: "batch", 1: "encoder_length"} for key in ("input_ids", "attention_mask")},
        ("hidden",),
        {"hidden": {0: "batch", 1: "encoder_length"}},
    )


def _decoder_alone(family: str) -> Exportable:
    return Exportable(
        _Decoder(_model(*_BOTH[family])),
        {
            "decoder_input_ids": _ids(7),
            "hidden": torch.randn(_BATCH, _LENGTH, 64),
            "attention_mask": torch.ones(_BATCH, _LENGTH).long(),
        },
        {
            "decoder_input_ids": {0: "batch", 1: "decoder_length"},
            "hidden": {0: "batch", 1: "encoder_length"},
            "attention_mask": {0: "batch", 1: "encoder_length"},
        },
        ("logits",),
        {"logits": {0: "batch", 1: "decoder_length"}},
    )


TEXT: dict[str, Builder] = {
    **{family: partial(_encoder, family) for family in _ENCODERS},
    **{f"{family}_encoder": partial(_encoder_alone, family) for family in _BOTH},
    **{f"{family}_decoder": partial(_decoder_alone, family) for family in _BOTH},
}
"""Builders by name."""
