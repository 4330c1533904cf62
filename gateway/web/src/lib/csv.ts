/** A table as CSV (RFC 4180). Cells that a spreadsheet would run as a formula stay text. */
export function tableCsv(table: HTMLTableElement): string {
  return Array.from(table.rows, (row) => Array.from(row.cells, (cell) => field(textOf(cell))).join(",")).join("\r\n");
}

/** Maths is written as its TeX: MathML's text alone loses the fractions and the powers. */
function textOf(cell: HTMLElement): string {
  const copy = cell.cloneNode(true) as HTMLElement;
  for (const span of copy.querySelectorAll<HTMLElement>("[data-tex]")) span.textContent = span.dataset.tex ?? "";
  return copy.textContent?.trim() ?? "";
}

function field(text: string): string {
  const safe = /^[=@\t]|^[+-](?![\d.,\s]*%?$)/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
