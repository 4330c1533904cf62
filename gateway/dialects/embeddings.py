"""POST /v1/embeddings: request and answer."""

import base64
from array import array
from typing import Annotated, Literal

from pydantic import Field

from gateway.dialects.wire import Wire, dumps
from services.common.messages import EmbeddingRequest, Embeddings

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Tokens = Annotated[list[TokenId], Field(fail_fast=True, min_length=1, max_length=100_000)]
MAX_INPUTS = 2048


class EmbeddingsBody(Wire):
    model: str = Field(min_length=1, max_length=256)
    input: (
        str
        | Tokens
        | Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MAX_INPUTS)]
        | Annotated[list[Tokens], Field(fail_fast=True, min_length=1, max_length=MAX_INPUTS)]
    )
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1, le=65_536)
    user: str | None = Field(None, max_length=512)

    def request(self) -> EmbeddingRequest:
        given = self.input
        if isinstance(given, str):
            inputs: tuple[str | tuple[int, ...], ...] = (given,)
        elif isinstance(given[0], int):
            inputs = (tuple(t for t in given if isinstance(t, int)),)
        else:
            inputs = tuple(tuple(x) if isinstance(x, list) else str(x) for x in given)
        return EmbeddingRequest(model=self.model, inputs=inputs, dimensions=self.dimensions)

    def answer(self, found: Embeddings) -> bytes:
        encode = _base64 if self.encoding_format == "base64" else list
        usage = {"prompt_tokens": found.prompt_tokens, "total_tokens": found.prompt_tokens}
        data = [{"object": "embedding", "index": i, "embedding": encode(v)} for i, v in enumerate(found.vectors)]
        return dumps({"object": "list", "data": data, "model": self.model, "usage": usage})


def _base64(vector: tuple[float, ...]) -> str:
    """Little-endian float32, as the official clients decode it."""
    values = array("f", vector)
    return base64.b64encode(values.tobytes()).decode()
