"""Limits as a program meets them: what is left, how long to wait, and what has been used."""

import os
import time

import openai

client = openai.OpenAI(base_url=os.environ.get("ANTIPHON_URL", "http://127.0.0.1:8000") + "/v1", max_retries=0)
model = client.models.list().data[0].id
question = [{"role": "user", "content": "Sing a line."}]

for _ in range(5):
    try:
        raw = client.chat.completions.with_raw_response.create(model=model, messages=question, max_tokens=8)
        left = raw.headers.get("x-ratelimit-remaining-tokens", "no limit")
        print(f"tokens left: {left}; used: {raw.parse().usage.total_tokens}")
    except openai.RateLimitError as e:
        if e.code == "insufficient_quota":
            raise SystemExit(e.message) from None
        wait = int(e.response.headers["retry-after"])
        print(f"limited: {e.message} Waiting {wait} s …")
        time.sleep(wait)

usage = client.get("/usage", cast_to=object, options={"params": {"bucket": "all", "group_by": "model"}})
print(usage)
