// Each failure is the class that the official JavaScript client gives it.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { client, MODEL, stranger } from "./setup.mjs";

const body = { model: MODEL, messages: [{ role: "user", content: "hi" }], max_tokens: 2 };

test("a wrong key is an AuthenticationError", async () => {
  await assert.rejects(stranger.chat.completions.create(body), (error) => {
    assert.ok(error instanceof OpenAI.AuthenticationError);
    assert.equal(error.code, "invalid_api_key");
    assert.ok(error.requestID.startsWith("req_"));
    return true;
  });
});

test("a missing model is a NotFoundError, streamed or not", async () => {
  for (const stream of [false, true])
    await assert.rejects(client.chat.completions.create({ ...body, model: "missing", stream }), (error) => {
      assert.ok(error instanceof OpenAI.NotFoundError);
      assert.equal(error.code, "model_not_found");
      return true;
    });
});

test("a bad parameter is a BadRequestError that names it", async () => {
  await assert.rejects(client.chat.completions.create({ ...body, temperature: 3 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    return true;
  });
});

test("a body too large is a 413", async () => {
  const messages = [{ role: "user", content: "x".repeat(9 << 20) }];
  await assert.rejects(client.chat.completions.create({ ...body, messages }), (error) => {
    assert.equal(error.status, 413);
    return true;
  });
});
