import { expect, it } from "vitest";
import { morph } from "../src/lib/markdown/morph";

function nodes(html: string): HTMLElement {
  const host = document.createElement("div");
  host.innerHTML = html;
  return host;
}

it.each([
  ["", "<p>a</p>"],
  ["<p>a</p>", "<p>a b</p>"],
  ["<p>a <b>b</b></p>", "<p>a</p><ul><li>x</li></ul>"],
  ["<ul><li>x</li></ul>", "<ul><li>x</li><li>y</li></ul>"],
  ["<a href='x'>a</a>", "<a href='y'>a</a>"],
  ["<p>a</p><p>b</p><p>c</p>", "<p>b</p>"],
])("turns %j into %j", (from, to) => {
  const host = nodes(from);
  morph(host, nodes(to));
  expect(host.innerHTML).toBe(nodes(to).innerHTML);
});

it("keeps the nodes that stay", () => {
  const host = nodes("<ul><li>one</li><li>tw</li></ul>");
  const [first, second] = host.querySelectorAll("li");
  const text = second?.firstChild;
  morph(host, nodes("<ul><li>one</li><li>two</li><li>three</li></ul>"));
  expect(host.querySelectorAll("li")[0]).toBe(first);
  expect(host.querySelectorAll("li")[1]?.firstChild).toBe(text);
});
