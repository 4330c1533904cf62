/** Groups a newest-first list under Today, Yesterday, … by the reader's own calendar days. */
export interface Group<T> {
  label: string;
  items: T[];
}

export function groupByDate<T extends { updated: number }>(items: T[], now = new Date()): Group<T>[] {
  const groups: Group<T>[] = [];
  for (const item of items) {
    const label = dateLabel(new Date(item.updated * 1000), now);
    const last = groups.at(-1);
    if (last?.label === label) last.items.push(item);
    else groups.push({ label, items: [item] });
  }
  return groups;
}

function dateLabel(date: Date, now: Date): string {
  const days = calendarDay(now) - calendarDay(date);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Previous 7 days";
  if (days <= 30) return "Previous 30 days";
  const month = date.toLocaleDateString("en", { month: "long" });
  return date.getFullYear() === now.getFullYear() ? month : `${month} ${date.getFullYear()}`;
}

/** Days since the epoch of the local date; counted in UTC so that a change of clock adds no hour. */
function calendarDay(date: Date): number {
  return Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) / 86_400_000;
}
