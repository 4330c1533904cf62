import { expect, it } from "vitest";
import { groupByDate } from "../src/lib/dates";

const NOW = new Date(2026, 2, 15, 9, 30);
const at = (...date: [number, number, number, number?]) => ({ updated: new Date(...date).getTime() / 1000 });

it("groups by the reader's calendar days", () => {
  const items = [
    at(2026, 2, 15, 9),
    at(2026, 2, 15, 0),
    at(2026, 2, 14, 23),
    at(2026, 2, 13),
    at(2026, 2, 8),
    at(2026, 2, 7),
    at(2026, 1, 13),
    at(2026, 0, 20),
    at(2025, 11, 31),
  ];
  expect(groupByDate(items, NOW).map(({ label, items: { length } }) => [label, length])).toEqual([
    ["Today", 2],
    ["Yesterday", 1],
    ["Previous 7 days", 2],
    ["Previous 30 days", 2],
    ["January", 1],
    ["December 2025", 1],
  ]);
});

it("calls a clock that is ahead today", () => {
  expect(groupByDate([at(2026, 2, 16)], NOW)[0]?.label).toBe("Today");
});
