/** Numbers, money and times as a person reads them. */

const MICRO = 1_000_000;
const DAY_S = 86_400;

/** Micro-units as money. A sum of less than a cent keeps two digits that say something. */
export function money(micro: number, currency: string): string {
  const amount = micro / MICRO;
  const small = amount !== 0 && Math.abs(amount) < 0.01;
  const digits = small ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 };
  try {
    return amount.toLocaleString("en", { style: "currency", currency, currencyDisplay: "narrowSymbol", ...digits });
  } catch {
    // Not a currency of ISO 4217: credits, say.
    return `${amount.toLocaleString("en", digits)} ${currency}`.trimEnd();
  }
}

/** What a person typed, in micro-units; undefined where it is no amount. */
export function microOf(text: string): number | undefined {
  const amount = text.trim().replace(",", ".");
  return /^\d{1,9}(\.\d{1,6})?$/.test(amount) ? Math.round(Number(amount) * MICRO) : undefined;
}

export function count(value: number): string {
  return value.toLocaleString("en");
}

/** 1,234,567 as 1.2M, where there is little room. */
export function compact(value: number): string {
  return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
}

export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** "5 Mar 2026", by the reader's own calendar. */
export function day(seconds: number): string {
  return new Date(seconds * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

/** "5 Mar", of a day that is counted in UTC. */
export function utcDay(seconds: number): string {
  return new Date(seconds * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
}

export function moment(seconds: number): string {
  return new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** "today", "3 days ago", and the date where it is long ago. */
export function ago(seconds: number | null | undefined, now = Date.now() / 1000): string {
  if (!seconds) return "never";
  const passed = now - seconds;
  if (passed < 120) return "just now";
  if (passed < 3600) return `${Math.floor(passed / 60)} minutes ago`;
  if (passed < DAY_S) return plural(Math.floor(passed / 3600), "hour") + " ago";
  if (passed < 31 * DAY_S) return plural(Math.floor(passed / DAY_S), "day") + " ago";
  return `on ${day(seconds)}`;
}

/** "in 3 days", of what is to end. */
export function until(seconds: number, now = Date.now() / 1000): string {
  const left = seconds - now;
  if (left <= 0) return "ended";
  if (left < 3600) return "within the hour";
  if (left < DAY_S) return `in ${plural(Math.floor(left / 3600), "hour")}`;
  return `in ${plural(Math.round(left / DAY_S), "day")}`;
}
