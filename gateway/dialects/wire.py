"""What the OpenAI-compatible dialects share: validation, sampling parameters, SSE frames."""

from collections import Counter
from typing import Annotated, Any, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.common.errors import InvalidRequest
from services.common.messages import Sampling, TokenLogprob, Usage

M = TypeVar("M", bound=BaseModel)
DONE = b"data: [DONE]\n\n"
MAX_STOPS = 16
Probability = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
StopText = Annotated[str, Field(min_length=1, max_length=1000)]
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]


class Wire(BaseModel):
    """Strict: "5" is no number; and closed: a misspelt parameter is an error, not silence.

    Lists fail fast: pydantic would make an error of each item, and the items of one body can be millions.
    """

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class StreamOptions(Wire):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class SamplingFields(Wire):
    """The parameters that all generating endpoints have. top_k, min_p and repetition_penalty are vLLM's extensions."""

    model: str = Field(min_length=1, max_length=256)
    n: int | None = Field(None, ge=1, le=128)
    max_tokens: int | None = Field(None, ge=1, le=10_000_000)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: Probability | None = None
    top_k: int | None = Field(None, ge=0, le=1_000_000)
    min_p: Probability | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    stop: StopText | Annotated[list[StopText], Field(fail_fast=True, max_length=MAX_STOPS)] | None = None
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, max_length=512)

    def sampling(self, max_tokens: int | None, logprobs: int | None) -> Sampling:
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return Sampling(
            max_tokens=max_tokens, temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p,
            # Engines take 32 bits; folding keeps the promise that one seed gives one answer.
            seed=None if self.seed is None else self.seed & 0x7FFFFFFF,
            frequency_penalty=self.frequency_penalty or 0.0, presence_penalty=self.presence_penalty or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0, stop=stops, logit_bias=self._bias(), logprobs=logprobs,
        )  # fmt: skip

    def include_usage(self) -> bool:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options is only allowed when stream is true.", param="stream_options")
        return bool(self.stream_options and self.stream_options.include_usage)

    def choices(self, most: int) -> int:
        if (self.n or 1) > most:
            raise InvalidRequest(f"n is {self.n}; this server allows {most} at most.", param="n")
        return self.n or 1

    def _bias(self) -> dict[int, float]:
        try:
            bias = {int(token): value for token, value in (self.logit_bias or {}).items()}
        except ValueError:
            raise InvalidRequest("The keys of logit_bias must be token ids.", param="logit_bias") from None
        if any(not 0 <= token < 2**31 for token in bias):
            raise InvalidRequest("A token id in logit_bias is out of range.", param="logit_bias")
        return bias


def parse(model: type[M], data: dict[str, Any]) -> M:
    """Errors: `InvalidRequest` that names the field."""
    try:
        return model.model_validate(data)
    except ValidationError as e:
        raise error_of(e.errors(include_url=False, include_context=False, include_input=False)) from None


def error_of(errors: Any) -> InvalidRequest:
    """The first field that pydantic complains of, in the API's words; of a union, the member that came closest."""
    first = errors[0]["loc"]
    depth = 2 if len(first) > 1 and isinstance(first[1], int) else 1
    same_field = [e for e in errors if e["loc"][:depth] == first[:depth]]
    of_member = Counter(e["loc"][: depth + 1] for e in same_field)

    def distance(error: Any) -> tuple[Any, ...]:
        member, rest = error["loc"][: depth + 1], error["loc"][depth + 1 :]
        wrong_type = error["type"].endswith("_type")
        item = rest[0] if rest and isinstance(rest[0], int) else -1
        return wrong_type and not rest, of_member[member], wrong_type, -item, -len(rest)

    found = min(same_field, key=distance)
    param = _path(found["loc"])
    if found["type"] == "extra_forbidden":
        *parents, name = found["loc"]
        parent = _path(tuple(parents))
        param = (f"{parent}.{name}" if parent else str(name))[:200]
        return InvalidRequest(f"Unknown parameter: '{param}'.", param=param, code="unknown_parameter")
    if found["type"] == "missing":
        return InvalidRequest(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    where = f"'{param}'" if param else "the body"
    return InvalidRequest(f"Invalid value for {where}: {found['msg']}.", param=param, code="invalid_value")


_TAGGED = {"messages", "response_format"}
"""Fields whose members are told apart by a tag, which pydantic puts into the path."""
_UNION_MEMBERS = frozenset(("str", "int", "float", "bool"))


def _path(loc: tuple[str | int, ...]) -> str | None:
    """('messages', 0, 'user', 'content', 'str') → messages[0].content: without the names of union members."""
    out, tag_next = "", False
    for part in loc:
        if isinstance(part, int):
            out += f"[{part}]"
            continue
        if tag_next or part in _UNION_MEMBERS or not part.isidentifier() or part[0].isupper():
            tag_next = False
            continue
        out += f".{part}" if out else part
        tag_next = part in _TAGGED
    return out or None


def usage_json(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    }  # fmt: skip


def logprob_json(p: TokenLogprob) -> dict[str, Any]:
    entry = {"token": p.token, "logprob": p.logprob, "bytes": list(p.bytes)}
    return entry | {"top_logprobs": [{"token": t.token, "logprob": t.logprob, "bytes": list(t.bytes)} for t in p.top]}


def dumps(value: Any) -> bytes:
    return msgspec.json.encode(value)
