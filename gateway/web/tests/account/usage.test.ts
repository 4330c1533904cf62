import { expect, it } from "vitest";
import type { UsageBucket } from "../../src/lib/account/types";
import { budgetOf, byGroup, nextMonth, span, stacks, ticks, total } from "../../src/lib/account/usage";

const DAY = 86_400;
const NOON = Date.UTC(2026, 2, 15, 12) / 1000;
const MIDNIGHT = Date.UTC(2026, 2, 15) / 1000;

const bucket = (start: number, model: string, cost: number): UsageBucket => ({
  start,
  group: { model },
  requests: 1,
  prompt_tokens: 10,
  cached_tokens: 4,
  output_tokens: 5,
  reasoning_tokens: 0,
  tool_ms: 0,
  cost,
});

it("takes whole days of UTC, today among them", () => {
  expect(span("7", NOON)).toEqual({ start: MIDNIGHT - 6 * DAY, end: MIDNIGHT + DAY });
  expect(span("90", NOON).end - span("90", NOON).start).toBe(90 * DAY);
  expect(span("month", NOON)).toEqual({ start: Date.UTC(2026, 2, 1) / 1000, end: MIDNIGHT + DAY });
});

it("begins the month on its first day, also at its last second", () => {
  const last = Date.UTC(2026, 11, 31, 23, 59, 59) / 1000;
  expect(span("month", last)).toEqual({ start: Date.UTC(2026, 11, 1) / 1000, end: Date.UTC(2027, 0, 1) / 1000 });
  expect(nextMonth(last)).toBe(Date.UTC(2027, 0, 1) / 1000);
});

it("adds up all that was used", () => {
  expect(total([bucket(0, "a", 3), bucket(0, "b", 4)])).toEqual({
    requests: 2,
    prompt_tokens: 20,
    cached_tokens: 8,
    output_tokens: 10,
    cost: 7,
  });
});

it("lists the greatest group first, by what is measured", () => {
  const buckets = [bucket(0, "dear", 9), bucket(0, "busy", 1), bucket(DAY, "busy", 1)];
  expect(byGroup(buckets, "model", "cost").map(({ id }) => id)).toEqual(["dear", "busy"]);
  expect(byGroup(buckets, "model", "tokens").map(({ id }) => id)).toEqual(["busy", "dear"]);
});

it("shows days on which nothing happened, and stacks the others", () => {
  const { series, columns } = stacks([bucket(0, "a", 5), bucket(2 * DAY, "a", 1), bucket(2 * DAY, "b", 2)], "model", "cost", {
    start: 0,
    end: 3 * DAY,
  });
  expect(series.map(({ id }) => id)).toEqual(["a", "b"]);
  expect(columns).toEqual([
    { start: 0, values: [5, 0], sum: 5 },
    { start: DAY, values: [0, 0], sum: 0 },
    { start: 2 * DAY, values: [1, 2], sum: 3 },
  ]);
});

it("puts the small groups together and loses none of them", () => {
  const buckets = Array.from({ length: 9 }, (_, index) => bucket(0, `m${index}`, 100 - index));
  const { series, columns } = stacks(buckets, "model", "cost", { start: 0, end: DAY });
  expect(series.map(({ id }) => id)).toEqual(["m0", "m1", "m2", "m3", "m4", null]);
  expect(columns[0]?.sum).toBe(buckets.reduce((sum, { cost }) => sum + cost, 0));
});

it("takes a use without a group for the group without a name", () => {
  const nameless = { ...bucket(0, "", 1), group: {} };
  expect(byGroup([nameless], "key_id", "cost")).toHaveLength(1);
  expect(stacks([nameless], "key_id", "requests", { start: 0, end: DAY }).columns[0]?.values).toEqual([1]);
});

it.each([
  [0, [0, 1]],
  [3, [0, 1, 2, 3]],
  [4, [0, 1, 2, 3, 4]],
  [97, [0, 25, 50, 75, 100]],
  [610_000, [0, 200_000, 400_000, 600_000, 800_000]],
])("marks an axis up to %i with round steps", (most, marks) => {
  expect(ticks(most)).toEqual(marks);
});

it("never draws a bar above its axis", () => {
  for (let most = 1; most < 5000; most += 7) expect(ticks(most).at(-1)).toBeGreaterThanOrEqual(most);
});

it("says how a budget stands", () => {
  expect(budgetOf({ limit: null, spent: 5 })).toBeNull();
  expect(budgetOf({ limit: 100, spent: 20 })).toEqual({ part: 0.2, state: "fine" });
  expect(budgetOf({ limit: 100, spent: 80 })?.state).toBe("near");
  expect(budgetOf({ limit: 100, spent: 130 })).toEqual({ part: 1, state: "over" });
  expect(budgetOf({ limit: 0, spent: 0 })?.state).toBe("over");
});
