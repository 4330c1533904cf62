"""Chat in a terminal: `ANTIPHON_API_KEY=sk-… python examples/chat.py`. Needs the openai package."""

import os

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

client = OpenAI(
    base_url=os.environ.get("ANTIPHON_URL", "http://127.0.0.1:8000") + "/v1", api_key=os.environ["ANTIPHON_API_KEY"]
)
model = client.models.list().data[0].id
history: list[ChatCompletionMessageParam] = []
while question := input("\nYou (an empty line ends): "):
    history.append({"role": "user", "content": question})
    answer = ""
    for chunk in client.chat.completions.create(model=model, messages=history, stream=True):
        piece = chunk.choices[0].delta.content or ""
        answer += piece
        print(piece, end="", flush=True)
    history.append({"role": "assistant", "content": answer})
