// Chat completions with the official JavaScript client: whole, streamed, cancelled, asked for usage.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, MODEL } from "./setup.mjs";

const messages = [{ role: "user", content: "Say hello." }];
const body = { model: MODEL, messages, max_tokens: 12, temperature: 0 };

test("models are listed and retrieved", async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.ok(ids.includes(MODEL));
  assert.equal((await client.models.retrieve(MODEL)).id, MODEL);
});

test("a stream says what the whole answer says", async () => {
  const whole = await client.chat.completions.create(body);
  assert.ok(whole.choices[0].message.content);
  assert.ok(whole._request_id.startsWith("req_"));
  let text = "", usage;
  const finish = [];
  const options = { stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create({ ...body, ...options })) {
    text += chunk.choices[0]?.delta.content ?? "";
    if (chunk.choices[0]?.finish_reason) finish.push(chunk.choices[0].finish_reason);
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.deepEqual(finish, [whole.choices[0].finish_reason]);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("the client's own helper follows a stream to its end", async () => {
  const stream = client.chat.completions.stream({ ...body, n: 2, temperature: 1 });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices.length, 2);
});

test("a stream can be left", async () => {
  const stream = await client.chat.completions.create({ ...body, max_tokens: 400, stream: true });
  let seen = 0;
  for await (const _ of stream) if (++seen === 3) break;
  assert.equal(seen, 3);
});

test("a schema is kept", async () => {
  const schema = {
    type: "object", additionalProperties: false, required: ["colour"], properties: { colour: { enum: ["red", "green"] } },
  };
  const response_format = { type: "json_schema", json_schema: { name: "pick", strict: true, schema } };
  const answer = await client.chat.completions.create({ ...body, max_tokens: 40, response_format });
  assert.match(JSON.parse(answer.choices[0].message.content).colour, /^(red|green)$/);
});

test("a legacy completion is streamed", async () => {
  let text = "";
  for await (const chunk of await client.completions.create({ model: MODEL, prompt: "Snow", max_tokens: 6, stream: true }))
    text += chunk.choices[0].text;
  assert.ok(text);
});
