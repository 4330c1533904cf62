"""A generation as the body of a request to an OpenAI-compatible server."""

from collections.abc import Sequence
from typing import Any

import msgspec

from services.common.messages import GenerationRequest, Message, Sampling, TokenizeRequest, Tool, ToolChoice


def generation_body(model: str, request: GenerationRequest) -> tuple[str, bytes]:
    """The path below the base URL, and the body. model: the server's own name for it."""
    body = _parameters(request.sampling) | {"model": model, "n": request.n}
    if request.output_schema is not None:
        body["response_format"] = _response_format(request.output_schema)
    if request.prompt is not None:
        body["prompt"] = request.prompt
        if request.sampling.logprobs is not None:
            body["logprobs"] = request.sampling.logprobs
        return "/completions", msgspec.json.encode(body)
    body["messages"] = [_message(m) for m in request.messages]
    if request.sampling.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.sampling.logprobs}
    if request.tools and request.tool_choice.mode != "none":
        body["tools"] = _tools(request.tools)
        body["tool_choice"] = _tool_choice(request.tool_choice)
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.continue_last:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return "/chat/completions", msgspec.json.encode(body)


def tokenize_body(model: str, request: TokenizeRequest) -> bytes:
    """As vLLM's /tokenize takes it."""
    body: dict[str, Any] = {"model": model}
    if request.text is not None:
        body |= {"prompt": request.text, "add_special_tokens": request.whole}
    else:
        body["messages"] = [_message(m) for m in request.messages]
        if request.tools:
            body["tools"] = _tools(request.tools)
    return msgspec.json.encode(body)


def _parameters(s: Sampling) -> dict[str, Any]:
    body: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    optional = {
        "max_tokens": s.max_tokens, "temperature": s.temperature, "top_p": s.top_p, "top_k": s.top_k, "min_p": s.min_p,
        "seed": s.seed,
        "frequency_penalty": s.frequency_penalty or None, "presence_penalty": s.presence_penalty or None,
        "repetition_penalty": s.repetition_penalty if s.repetition_penalty != 1 else None, "stop": s.stop or None,
        "logit_bias": {str(k): v for k, v in s.logit_bias.items()} or None,
    }  # fmt: skip
    return body | {name: value for name, value in optional.items() if value is not None}


def _message(m: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"role": m.role, "content": m.content}
    if m.name:
        out["name"] = m.name
    if m.tool_calls:
        out["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in m.tool_calls
        ]
    if m.tool_call_id:
        out["tool_call_id"] = m.tool_call_id
    return out


def _tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": _function(t)} for t in tools]


def _function(t: Tool) -> dict[str, Any]:
    return {"name": t.name, "description": t.description, "parameters": t.parameters} | (
        {"strict": True} if t.strict else {}
    )


def _tool_choice(choice: ToolChoice) -> Any:
    return {"type": "function", "function": {"name": choice.name}} if choice.mode == "named" else choice.mode


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:
    if not schema:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": schema, "strict": True}}
