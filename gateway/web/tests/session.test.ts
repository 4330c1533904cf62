import { beforeEach, expect, it, vi } from "vitest";
import { ApiError } from "../src/lib/api";
import { answerProblem, problemOf } from "../src/lib/problems";
import { router } from "../src/lib/router.svelte";
import { session } from "../src/lib/session.svelte";
import { load, save } from "../src/lib/storage";
import type { Message } from "../src/lib/types";

const answerTo = (user: object | null) =>
  vi.stubGlobal("fetch", async () => Response.json({ authenticated: true, user, role: "owner", organisation: { id: "org_1" }, scopes: ["admin"] }));
const ada = { id: "user_1", email: "ada@example.com", name: "Ada", has_password: true };

beforeEach(() => {
  localStorage.clear();
  session.identity = null;
  save("draft.conv_1", "typed");
});

it("gives a session that a key has opened no more than the key's rights", async () => {
  vi.stubGlobal("fetch", async () =>
    Response.json({ authenticated: true, user: null, role: "owner", organisation: { id: "org_1" }, scopes: ["conversations"] }),
  );
  await session.check();
  expect([session.role, session.admin]).toEqual(["owner", false]);
});

it("knows who is signed in", async () => {
  answerTo(ada);
  await session.check();
  expect([session.state, session.name, session.admin]).toEqual(["in", "Ada", true]);
});

it("keeps drafts while the same person is signed in, also when the owner makes an account", async () => {
  answerTo(null);
  await session.check();
  answerTo(ada);
  await session.check();
  expect(load("draft.conv_1", "")).toBe("typed");
  expect(session.identity?.user?.id).toBe("user_1");
});

it("shows nobody what another person typed", async () => {
  save("who", "org_1 user_2");
  answerTo(ada);
  await session.check();
  expect(load("draft.conv_1", "")).toBe("");
});

it("keeps the conversation under the settings, and goes back to it", () => {
  router.go("conv_1");
  router.openSettings("keys");
  expect([location.pathname, router.settings, router.conversation]).toEqual(["/settings/keys", "keys", "conv_1"]);
  router.replace("conv_2");
  expect(location.pathname).toBe("/settings/keys");
  router.closeSettings();
  expect([location.pathname, router.settings]).toEqual(["/c/conv_2", null]);
});

const failed = (error: string, created = 100): Message => ({
  id: "msg_1",
  conversation_id: "conv_1",
  parent_id: null,
  role: "assistant",
  content: "",
  status: "error",
  model: null,
  finish_reason: null,
  error,
  usage: null,
  created,
});

it("waits as long as a limit's own words say", () => {
  const message = failed("Your limit of 3 requests per minute is reached. Try again in 20 s.");
  expect(answerProblem(message, 105)).toMatchObject({ why: message.error, waitSeconds: 15, retryable: true });
  expect(answerProblem(message, 500).waitSeconds).toBe(0);
  expect(answerProblem(message, 0).waitSeconds).toBe(20);
});

it("does not say twice when to try again", () => {
  const error = new ApiError(429, { message: "Your limit is reached. Try again in 20 s." }, 20);
  expect(problemOf(error)).toMatchObject({ advice: "", waitSeconds: 20, retryable: true, quota: false });
  expect(problemOf(new ApiError(429, { message: "Slow down" })).advice).toContain("Wait a little");
});

it("shows the way to the usage page where a budget is used up", () => {
  const spent = "This request could pass your organisation's budget for this month.";
  expect(problemOf(new ApiError(429, { message: spent, code: "insufficient_quota" }))).toMatchObject({ quota: true, retryable: false });
  expect(answerProblem(failed(spent)).quota).toBe(true);
  expect(answerProblem(failed("The engine died.")).quota).toBe(false);
});
