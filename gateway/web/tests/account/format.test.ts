import { expect, it } from "vitest";
import { ago, microOf, money, until } from "../../src/lib/account/format";

const NOW = 1_800_000_000;

it.each([
  [0, "USD", "$0.00"],
  [1_234_560_000, "USD", "$1,234.56"],
  [12_345, "EUR", "€0.01"],
  [470, "USD", "$0.00047"],
  [1, "USD", "$0.000001"],
  [2_500_000, "credits", "2.50 credits"],
])("writes %i micro-units of %s as %s", (micro, currency, words) => {
  expect(money(micro, currency)).toBe(words);
});

it.each([
  ["50", 50_000_000],
  [" 12,50 ", 12_500_000],
  ["0.000001", 1],
  ["0", 0],
  ["", undefined],
  ["-1", undefined],
  ["1e3", undefined],
  ["1,000.00", undefined],
  ["many", undefined],
])("takes %j for %s micro-units", (text, micro) => {
  expect(microOf(text)).toBe(micro);
});

it.each([
  [null, "never"],
  [NOW + 30, "just now"],
  [NOW - 600, "10 minutes ago"],
  [NOW - 3600, "1 hour ago"],
  [NOW - 3 * 86_400, "3 days ago"],
])("says when %s was", (then, words) => {
  expect(ago(then, NOW)).toBe(words);
});

it("gives the date of what is long ago", () => {
  expect(ago(NOW - 100 * 86_400, NOW)).toMatch(/^on \d+ \w+ 20\d\d$/);
});

it.each([
  [-1, "ended"],
  [60, "within the hour"],
  [7200, "in 2 hours"],
  [7 * 86_400 - 5, "in 7 days"],
])("says when what ends %i s from now ends", (left, words) => {
  expect(until(NOW + left, NOW)).toBe(words);
});
