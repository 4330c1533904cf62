import { expect, it } from "vitest";
import { tableCsv } from "../src/lib/csv";

function table(html: string): HTMLTableElement {
  const host = document.createElement("div");
  host.innerHTML = `<table>${html}</table>`;
  return host.querySelector("table") as HTMLTableElement;
}

it("quotes what needs it", () => {
  expect(tableCsv(table("<tr><th>a</th><th>b, c</th></tr><tr><td>say \"x\"</td><td>-1.5</td></tr>"))).toBe(
    'a,"b, c"\r\n"say ""x""",-1.5',
  );
});

it("keeps a spreadsheet from running a cell", () => {
  expect(tableCsv(table("<tr><td>=1+1</td><td>+cmd|x</td><td>@a</td><td>+5 %</td></tr>"))).toBe("'=1+1,'+cmd|x,'@a,+5 %");
});

it("writes maths as TeX", () => {
  expect(tableCsv(table('<tr><td><span data-tex="\\frac12"><math><mn>1</mn><mn>2</mn></math></span></td></tr>'))).toBe("\\frac12");
});
