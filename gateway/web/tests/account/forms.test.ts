import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Action, Countdown, Loaded } from "../../src/lib/account/action.svelte";
import { actionWords, actorWords, detailWords } from "../../src/lib/account/audit";
import { passwordHint, signInError } from "../../src/lib/account/signin";
import { ApiError } from "../../src/lib/api";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const refused = (status: number, message: string, param: string | null = null) => () =>
  Promise.reject(new ApiError(status, { message, param }));

it("puts a refusal at the field that it names, and nowhere else", async () => {
  const action = new Action();
  expect(await action.run(refused(400, "This is not an e-mail address.", "email"))).toBe(false);
  expect(action.at("email")).toBe("This is not an e-mail address.");
  expect(action.at("name")).toBe("");
  expect(action.beside("name", "email")).toBeNull();
});

it("says under the form what no field of it says", async () => {
  const action = new Action();
  await action.run(refused(400, "No.", "scopes"));
  expect(action.beside("name")?.why).toBe("No.");
  await action.run(() => Promise.resolve());
  expect(action.problem).toBeNull();
});

it("says what a status means here", async () => {
  const action = new Action({ 401: "The e-mail or the password is wrong." });
  await action.run(refused(401, "Invalid."));
  expect(action.problem).toMatchObject({ why: "The e-mail or the password is wrong.", advice: "" });
});

it("does a thing once, however often it is asked for meanwhile", async () => {
  const action = new Action();
  let finish = () => {};
  const deed = vi.fn(() => new Promise<void>((resolve) => (finish = resolve)));
  const first = action.run(deed);
  expect(await action.run(deed)).toBe(false);
  finish();
  expect(await first).toBe(true);
  expect(deed).toHaveBeenCalledTimes(1);
});

it("shows the answer to the last question, also where an earlier one comes later", async () => {
  const answers: ((value: string) => void)[] = [];
  const loaded = new Loaded(() => new Promise<string>((resolve) => answers.push(resolve)));
  const both = [loaded.load(), loaded.load()];
  answers[1]?.("second");
  answers[0]?.("first");
  await Promise.all(both);
  expect(loaded.value).toBe("second");
});

it("keeps what was shown where asking again fails", async () => {
  const fetch = vi.fn().mockResolvedValueOnce("shown").mockRejectedValueOnce(new ApiError(503, { message: "Busy" }));
  const loaded = new Loaded<string>(fetch);
  await loaded.load();
  await loaded.load();
  expect(loaded.value).toBe("shown");
  expect(loaded.problem?.why).toBe("Busy.");
});

it("counts down to the moment from which an attempt is taken again", () => {
  const pause = new Countdown();
  pause.start(2.4);
  expect(pause.left).toBe(3);
  vi.advanceTimersByTime(1500);
  expect(pause.left).toBe(1);
  vi.advanceTimersByTime(1000);
  expect(pause.left).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
});

it("judges a new password as it is typed", () => {
  expect(passwordHint("")).toContain("At least 8");
  expect(passwordHint("abcdefg")).toBe("1 more character.");
  expect(passwordHint("aaaaaaaaaaaa")).toContain("easily guessed");
  expect(passwordHint("correct horse battery")).toBe("Strong enough.");
});

it("never shows what an address says as if the server had said it", () => {
  expect(signInError(null)).toBe("");
  expect(signInError("expired")).toContain("Try again");
  expect(signInError("call 555-1234")).not.toContain("555");
});

it("reads the audit log in plain words", () => {
  expect(actionWords("key.revoke")).toBe("revoked the API key");
  expect(actionWords("signin.failed")).toBe("failed to sign in");
  expect(actionWords("dragon.feed")).toBe("dragon.feed");
  expect(detailWords({ role: "admin", scopes: ["a", "b"], name: "", models: [] })).toBe("role: admin · scopes: a, b");
  expect(detailWords(null)).toBe("");
  expect(actorWords("cli", new Map())).toBe("The command line");
  expect(actorWords("user_1", new Map([["user_1", "Ada"]]))).toBe("Ada");
  expect(actorWords("user_2", new Map())).toBe("user_2");
});
