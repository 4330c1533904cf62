import type { Grouping, UsageBucket } from "./types";

const DAY_S = 86_400;
/** More colours than this cannot be told apart. */
const MOST_SERIES = 6;

export type Range = "7" | "30" | "90" | "month";
export type Measure = "cost" | "tokens" | "requests";

/** start ≤ t < end in seconds, whole days of UTC: the server's days. */
export function span(range: Range, now = Date.now() / 1000): { start: number; end: number } {
  const today = Math.floor(now / DAY_S) * DAY_S;
  if (range !== "month") return { start: today - (Number(range) - 1) * DAY_S, end: today + DAY_S };
  const date = new Date(today * 1000);
  return { start: Date.UTC(date.getUTCFullYear(), date.getUTCMonth()) / 1000, end: today + DAY_S };
}

export interface Totals {
  requests: number;
  prompt_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  cost: number;
}

const NOTHING: Totals = { requests: 0, prompt_tokens: 0, cached_tokens: 0, output_tokens: 0, cost: 0 };

export function total(buckets: Totals[]): Totals {
  return buckets.reduce(
    (sum, bucket) => ({
      requests: sum.requests + bucket.requests,
      prompt_tokens: sum.prompt_tokens + bucket.prompt_tokens,
      cached_tokens: sum.cached_tokens + bucket.cached_tokens,
      output_tokens: sum.output_tokens + bucket.output_tokens,
      cost: sum.cost + bucket.cost,
    }),
    NOTHING,
  );
}

export function measured(totals: Totals, measure: Measure): number {
  return measure === "tokens" ? totals.prompt_tokens + totals.output_tokens : totals[measure];
}

function grouped<K>(buckets: UsageBucket[], key: (bucket: UsageBucket) => K): Map<K, UsageBucket[]> {
  const groups = new Map<K, UsageBucket[]>();
  for (const bucket of buckets) groups.set(key(bucket), [...(groups.get(key(bucket)) ?? []), bucket]);
  return groups;
}

/** The totals of each group, the greatest first. */
export function byGroup(buckets: UsageBucket[], grouping: Grouping, measure: Measure): { id: string; totals: Totals }[] {
  const groups = grouped(buckets, ({ group }) => group[grouping] ?? "");
  return Array.from(groups, ([id, all]) => ({ id, totals: total(all) })).sort(
    (a, b) => measured(b.totals, measure) - measured(a.totals, measure) || a.id.localeCompare(b.id),
  );
}

export interface Series {
  /** null: all the groups that have no colour of their own. */
  id: string | null;
}

export interface Column {
  start: number;
  sum: number;
  /** One value a series, in the order of the series. */
  values: number[];
}

export interface Stacks {
  series: Series[];
  columns: Column[];
}

/** Every day of the span, also those on which nothing happened, with a value for each of the greatest groups. */
export function stacks(buckets: UsageBucket[], grouping: Grouping, measure: Measure, { start, end }: { start: number; end: number }): Stacks {
  const groups = byGroup(buckets, grouping, measure).map(({ id }) => id);
  const shown = groups.length > MOST_SERIES ? groups.slice(0, MOST_SERIES - 1) : groups;
  const series: Series[] = shown.map((id) => ({ id }));
  if (shown.length < groups.length) series.push({ id: null });
  const days = grouped(buckets, (bucket) => Math.floor(bucket.start / DAY_S) * DAY_S);
  const columns: Column[] = [];
  for (let day = start; day < end; day += DAY_S) {
    const values = series.map(() => 0);
    for (const bucket of days.get(day) ?? []) {
      const index = shown.indexOf(bucket.group[grouping] ?? "");
      const at = index < 0 ? series.length - 1 : index;
      values[at] = (values[at] ?? 0) + measured(bucket, measure);
    }
    columns.push({ start: day, values, sum: values.reduce((a, b) => a + b, 0) });
  }
  return { series, columns };
}

/** Round values from 0 to at least `most`, about four steps. */
export function ticks(most: number): number[] {
  if (most <= 0) return [0, 1];
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, power * ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) ?? 10));
  const steps = Math.ceil(most / step - 1e-9);
  return Array.from({ length: steps + 1 }, (_, index) => index * step);
}

export interface Budget {
  /** Of the limit, from 0 to 1. */
  part: number;
  state: "fine" | "near" | "over";
}

export function budgetOf({ limit, spent }: { limit: number | null; spent: number }): Budget | null {
  if (limit === null || limit === undefined) return null;
  const part = limit > 0 ? spent / limit : 1;
  return { part: Math.min(1, part), state: part >= 1 ? "over" : part >= 0.8 ? "near" : "fine" };
}

/** When the month's budget begins anew, in seconds. */
export function nextMonth(now = Date.now() / 1000): number {
  const date = new Date(now * 1000);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1) / 1000;
}
