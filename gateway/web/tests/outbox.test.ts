import { beforeEach, expect, it } from "vitest";
import { drafts } from "../src/lib/drafts";
import { newMessageId, outbox } from "../src/lib/outbox";

beforeEach(() => localStorage.clear());

const entry = (conversation: string | null) => ({ id: newMessageId(), conversation, parent_id: null, content: "Hi" });

it("names messages as the server asks", () => {
  expect(newMessageId()).toMatch(/^msg_[0-9a-f]{32}$/);
  expect(newMessageId()).not.toBe(newMessageId());
});

it("keeps a message until it is removed", () => {
  const waiting = entry("conv_1");
  outbox.put(waiting);
  outbox.put(entry(null));
  expect(outbox.of("conv_1")).toEqual(waiting);
  outbox.remove(waiting.id);
  expect(outbox.of("conv_1")).toBeNull();
  expect(outbox.all()).toHaveLength(1);
});

it("holds a message once, as it was last put", () => {
  const waiting = entry(null);
  outbox.put(waiting);
  outbox.put({ ...waiting, conversation: "conv_2" });
  expect(outbox.of(null)).toBeNull();
  expect(outbox.of("conv_2")?.id).toBe(waiting.id);
});

it("survives what is not JSON in storage", () => {
  localStorage.setItem("antiphon.outbox", "{");
  expect(outbox.all()).toEqual([]);
});

it("keeps drafts by conversation", () => {
  drafts.set(null, "new");
  drafts.set("conv_1", "old");
  expect([drafts.get(null), drafts.get("conv_1"), drafts.get("conv_2")]).toEqual(["new", "old", ""]);
  drafts.set("conv_1", "");
  expect(localStorage.getItem("antiphon.draft.conv_1")).toBeNull();
});

it("drops what was to go into a deleted conversation, and nothing else", () => {
  const [gone, stays] = [entry("conv_1"), entry("conv_2")];
  outbox.put(gone);
  outbox.put(stays);
  outbox.removeOf("conv_1");
  expect(outbox.get(gone.id)).toBeNull();
  expect(outbox.get(stays.id)?.id).toBe(stays.id);
});
