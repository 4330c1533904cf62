"""Sentence embeddings from an ONNX model: tokenise, run, mean-pool, normalise."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.common.errors import InvalidRequest, ModelNotFound, Overloaded
from services.common.messages import EmbeddingRequest, Embeddings

MAX_TOKENS = 512
"""Positions that the model has, its two special tokens included."""
BATCH = 32
MAX_CHARACTERS = 100 * MAX_TOKENS
"""More than any text of MAX_TOKENS has; a longer one would keep the tokenizer busy only to be refused."""


class OnnxEmbedder:
    """One thread runs the model: on a small machine the cores belong to the language model."""

    def __init__(self, model: str, onnx: Path, tokenizer: Path):
        import onnxruntime
        from tokenizers import Tokenizer

        self.model = model
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
        self._names = {i.name for i in self._session.get_inputs()}
        self._dimensions = int(self._session.get_outputs()[0].shape[-1])
        self._lock = asyncio.Lock()

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        self._require(request.model)
        if request.dimensions is not None and request.dimensions > self._dimensions:
            raise InvalidRequest(f"This model has {self._dimensions} dimensions at most.", param="dimensions")
        ids = await self._tokenised(request)
        vectors: list[Any] = [None] * len(ids)
        # Like lengths together: padding costs as much as text.
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            async with self._lock:
                found = await asyncio.to_thread(self._run, [ids[i] for i in batch], request.dimensions)
            for i, vector in zip(batch, found, strict=True):
                vectors[i] = vector
        return Embeddings(tuple(vectors), sum(len(i) for i in ids))

    def _require(self, model: str) -> None:
        if model != self.model:
            raise ModelNotFound.named(model)

    async def count(self, request: EmbeddingRequest) -> int:
        return sum(len(ids) for ids in await self._tokenised(request))

    async def _tokenised(self, request: EmbeddingRequest) -> list[list[int]]:
        self._require(request.model)
        return await asyncio.to_thread(lambda: [self._ids(i, text) for i, text in enumerate(request.inputs)])

    def _ids(self, number: int, given: str | tuple[int, ...]) -> list[int]:
        where = f"input[{number}]"
        if isinstance(given, str):
            if not given:
                raise InvalidRequest("An input is empty.", param=where)
            if len(given) > MAX_CHARACTERS:
                raise InvalidRequest(
                    f"An input has {len(given)} characters; this model takes {MAX_TOKENS} tokens.", param=where
                )
            ids = list(self._tokenizer.encode(given).ids)
        else:
            size = self._tokenizer.get_vocab_size()
            if any(not 0 <= i < size for i in given):
                raise InvalidRequest(
                    "A token id is not in this model's vocabulary; send text, or ids of this model's own tokenizer.",
                    param=where,
                )
            special = self._tokenizer.encode("").ids
            ids = [special[0], *given, special[-1]]
        if len(ids) > MAX_TOKENS:
            raise InvalidRequest(f"An input has {len(ids)} tokens; this model takes {MAX_TOKENS}.", param=where)
        return ids

    def _run(self, ids: Sequence[list[int]], dimensions: int | None) -> list[tuple[float, ...]]:
        import numpy as np

        longest = max(len(i) for i in ids)
        tokens = np.zeros((len(ids), longest), dtype=np.int64)
        mask = np.zeros_like(tokens)
        for row, i in enumerate(ids):
            tokens[row, : len(i)] = i
            mask[row, : len(i)] = 1
        feed = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        hidden = self._session.run(None, {k: v for k, v in feed.items() if k in self._names})[0]
        weights = mask[:, :, None].astype(np.float32)
        pooled = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        pooled = pooled[:, :dimensions]
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return [tuple(row) for row in pooled.tolist()]


class NoEmbedder:
    """Where no embedding model could be had. why: what to do about it."""

    def __init__(self, why: str):
        self._why = why

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        raise Overloaded(self._why)

    async def count(self, request: EmbeddingRequest) -> int:
        raise Overloaded(self._why)
