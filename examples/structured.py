"""A typed answer: `ANTIPHON_API_KEY=sk-… python examples/structured.py`. Needs the openai package."""

import os

from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    name: str
    country: str
    on_the_sea: bool


client = OpenAI(
    base_url=os.environ.get("ANTIPHON_URL", "http://127.0.0.1:8000") + "/v1", api_key=os.environ["ANTIPHON_API_KEY"]
)
completion = client.chat.completions.parse(
    model=client.models.list().data[0].id,
    messages=[{"role": "user", "content": "Name a city in Italy."}],
    response_format=City,
    max_tokens=300,
)
print(completion.choices[0].message.parsed)
