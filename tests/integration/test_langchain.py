"""langchain-openai, as a program that knows only OpenAI would use it."""

from typing import Any, Literal

import pytest
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, SecretStr

from tests.support.server import EMBEDDINGS, MODEL, Server


class Weather(BaseModel):
    """A report."""

    city: Literal["Paris", "Rome"]
    sunny: bool


@tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather in a city."""
    return f"Sunny in {city}."


@pytest.fixture
def chat(server: Server) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL, base_url=f"{server.url}/v1", api_key=SecretStr(server.key), temperature=0, max_completion_tokens=60,
        max_retries=0,
    )  # fmt: skip


def test_invoke_answers_with_usage(chat: ChatOpenAI) -> None:
    answer = chat.invoke([SystemMessage("Be brief."), HumanMessage("Say hello.")])
    assert answer.content
    assert answer.usage_metadata
    assert answer.usage_metadata["output_tokens"] >= 1
    assert answer.response_metadata["model_name"] == MODEL


async def test_a_stream_adds_up_to_the_answer(chat: ChatOpenAI) -> None:
    whole = chat.invoke("Say hello.").content
    assert "".join(str(c.content) for c in chat.stream("Say hello.")) == whole
    assert "".join([str(c.content) async for c in chat.astream("Say hello.")]) == whole


def test_bound_tools_make_the_round(chat: ChatOpenAI) -> None:
    question = HumanMessage("What is the weather in Paris?")
    asked: Any = chat.bind_tools([get_weather], tool_choice="get_weather").invoke([question])
    [call] = asked.tool_calls
    assert call["name"] == "get_weather"
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage)
    answer = chat.invoke([question, asked, result])
    assert answer.content
    streamed = list(chat.bind_tools([get_weather], tool_choice="any").stream([question]))
    total: Any = streamed[0]
    for chunk in streamed[1:]:
        total += chunk
    assert total.tool_calls[0]["args"]["city"] in ("Paris", "Rome")


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_is_a_pydantic_model(chat: ChatOpenAI, method: Any) -> None:
    report = chat.with_structured_output(Weather, method=method).invoke("Paris is sunny.")
    assert isinstance(report, Weather)


def test_embeddings_of_texts_and_queries(server: Server) -> None:
    embeddings = OpenAIEmbeddings(
        model=EMBEDDINGS, base_url=f"{server.url}/v1", api_key=SecretStr(server.key), check_embedding_ctx_length=False
    )
    documents = embeddings.embed_documents(["A cat sleeps.", "Interest rates rose."])
    query = embeddings.embed_query("A cat sleeps.")
    assert len(query) == 384
    assert query == pytest.approx(documents[0], abs=1e-4)
    assert query != pytest.approx(documents[1], abs=1e-2)
