// Embeddings with the official JavaScript client, which asks for base64 by default and decodes it itself.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, EMBEDDINGS } from "./setup.mjs";

test("base64 and float are the same numbers, of unit length", async () => {
  const input = ["A cat sleeps.", "A cat sleeps."];
  const packed = await client.embeddings.create({ model: EMBEDDINGS, input });
  const plain = await client.embeddings.create({ model: EMBEDDINGS, input, encoding_format: "float" });
  assert.equal(packed.data.length, 2);
  const a = packed.data[0].embedding, b = plain.data[1].embedding;
  assert.equal(a.length, 384);
  assert.ok(a.every((x, i) => Math.abs(x - b[i]) < 1e-6));
  assert.ok(Math.abs(a.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-5);
});

test("fewer dimensions", async () => {
  const short = await client.embeddings.create({ model: EMBEDDINGS, input: "hello", dimensions: 32 });
  assert.equal(short.data[0].embedding.length, 32);
});
