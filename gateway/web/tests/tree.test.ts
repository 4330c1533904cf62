import { describe, expect, it } from "vitest";
import { branchPath, newestLeaf } from "../src/lib/tree";
import type { Message } from "../src/lib/types";

function message(id: string, parent_id: string | null, role: "user" | "assistant"): Message {
  return {
    id, parent_id, role, conversation_id: "conv_1", content: id, status: "complete",
    model: null, finish_reason: null, error: null, usage: null, created: 0,
  };
}

const TREE = [
  message("q1", null, "user"),
  message("a1", "q1", "assistant"),
  message("q2", "a1", "user"),
  message("a2", "q2", "assistant"),
  message("a2b", "q2", "assistant"),
  message("q2b", "a1", "user"),
  message("a3", "q2b", "assistant"),
];

describe("branchPath", () => {
  it("goes from the root to the leaf", () => {
    expect(branchPath(TREE, "a2").map((step) => step.message.id)).toEqual(["q1", "a1", "q2", "a2"]);
  });

  it("knows each message's siblings, oldest first", () => {
    const path = branchPath(TREE, "a2b");
    expect(path.map((step) => step.siblings)).toEqual([["q1"], ["a1"], ["q2", "q2b"], ["a2", "a2b"]]);
  });

  it("gives nothing for an unknown leaf, and ends in a loop", () => {
    expect(branchPath(TREE, "gone")).toEqual([]);
    expect(branchPath([message("x", "y", "user"), message("y", "x", "assistant")], "x")).toHaveLength(2);
  });
});

describe("newestLeaf", () => {
  it("follows the newest child", () => {
    expect(newestLeaf(TREE, null)).toBe("a3");
    expect(newestLeaf(TREE, "q2")).toBe("a2b");
    expect(newestLeaf(TREE, "a3")).toBe("a3");
    expect(newestLeaf([], null)).toBeNull();
  });
});
