// Tool calls with the official JavaScript client: required, named, streamed, and the round trip of a result.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, MODEL } from "./setup.mjs";

const parameters = { type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather.", parameters } }];
const messages = [{ role: "user", content: "What is the weather in Paris?" }];
const tool_choice = { type: "function", function: { name: "get_weather" } };
const body = { model: MODEL, messages, tools, max_tokens: 60, temperature: 0 };

test("a named tool is called, whole and streamed alike", async () => {
  const whole = await client.chat.completions.create({ ...body, tool_choice });
  const [call] = whole.choices[0].message.tool_calls;
  assert.equal(whole.choices[0].finish_reason, "tool_calls");
  assert.equal(call.function.name, "get_weather");
  assert.match(JSON.parse(call.function.arguments).city, /^(Paris|Rome)$/);
  const final = await client.chat.completions.stream({ ...body, tool_choice }).finalChatCompletion();
  assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
});

test("required calls, none does not", async () => {
  const called = await client.chat.completions.create({ ...body, tool_choice: "required" });
  assert.equal(called.choices[0].message.tool_calls.length, 1);
  const spoken = await client.chat.completions.create({ ...body, max_tokens: 8, tool_choice: "none" });
  assert.equal(spoken.choices[0].message.tool_calls, undefined);
});

test("a result makes the round", async () => {
  const asked = (await client.chat.completions.create({ ...body, tool_choice })).choices[0].message;
  const result = { role: "tool", tool_call_id: asked.tool_calls[0].id, content: "Sunny." };
  const answer = await client.chat.completions.create({ ...body, tools: undefined, messages: [...messages, asked, result] });
  assert.ok(answer.choices[0].message.content);
});
