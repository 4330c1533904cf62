import { describe, expect, it } from "vitest";
import { BlockStream } from "../src/lib/markdown/blocks";
import { formula } from "../src/lib/markdown/katex";
import { sanitise } from "../src/lib/markdown/sanitise";
import { unsafeHtml } from "../src/lib/markdown/parser";

function formulas(text: string): string[] {
  return new BlockStream().update(text).flatMap(({ token }) =>
    Array.from(sanitise(unsafeHtml(token)).querySelectorAll<HTMLElement>("[data-tex]"), (span) => span.dataset.tex ?? ""),
  );
}

describe("maths", () => {
  it.each([
    ["$x$", ["x"]],
    ["with $a_1 + b$ inside", ["a_1 + b"]],
    ["$5$", ["5"]],
    ["$2\\sin x$ and $3x+2y=5$", ["2\\sin x", "3x+2y=5"]],
    ["$$\\frac{a}{b}$$", ["\\frac{a}{b}"]],
    ["text $$x$$ text", ["x"]],
    ["\\(a\\) and \\[b\\]", ["a", "b"]],
    ["$$\na\n= b\n$$\n\nafter", ["a\n= b"]],
    ["\\[\n\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}\n\\]", ["\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}"]],
    ["- item\n\n  $$\n  q\n  $$", ["q"]],
    ["$a<b$ and $\\text{if } x$", ["a<b", "\\text{if } x"]],
  ])("%j holds %j", (text, expected) => expect(formulas(text)).toEqual(expected));

  it.each([
    "between $5 and $10 a month",
    "$5–$10",
    "costs $5, or 10$ more",
    "$20/month and 30$",
    "US$5 and CA$6",
    "`$x$` is code",
    "\\$x\\$",
    "a $ b $ c",
    "$$ is a lot\n\nand more",
    "$100,000 to $200,000 (a $100k raise)",
  ])("%j holds none", (text) => expect(formulas(text)).toEqual([]));
});

describe("formula", () => {
  it("is MathML with its letters spelt out", () => {
    const text = formula("\\mathbb{E} \\mathcal{L} \\mathbb{R}^2 \\mathbf{x1}", false).textContent ?? "";
    for (const letter of ["𝔼", "ℒ", "ℝ", "𝐱"]) expect(text).toContain(letter);
  });

  it("shows what it cannot read", () => expect(formula("\\frac{", true).textContent).toContain("\\frac{"));

  it("follows no links", () => expect((formula("\\href{javascript:alert(1)}{x}", false) as Element).querySelector("[href]")).toBeNull());
});
