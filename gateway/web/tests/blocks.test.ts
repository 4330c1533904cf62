import { describe, expect, it } from "vitest";
import { BlockStream } from "../src/lib/markdown/blocks";
import { clipboardHtml, renderBlock } from "../src/lib/markdown/render";

const TEXTS = [
  "# Title\n\nA paragraph\nover two lines.\n\n- one\n- two\n\n  more of two\n- three\n\nEnd.",
  "Text\n```js\nconst a = 1;\n\nconst b = 2;\n```\nmore\n\n~~~\nopen fence\n\n# not a title",
  "| a | b |\n|---|--:|\n| 1 | 2 |\n| 3 | 4 |\n\n> quote\nlazy\n\n> another",
  "a\n***\n===\n\nb\n---\n\n    indented\n\n    still\n\nc",
  "Sum $a+b$ and $$x^2$$ then\n\n$$\n\\sum_i x_i\n$$\n\nand \\[ y \\] or \\(z\\)\n\n$$ never closed\n\nit costs $5 or $10.",
  "See [one] and [two][1].\n\nMore text.\n\n[one]: https://one.example\n[1]: https://two.example \"Two\"\n\nEnd [one].",
  "<details>\n<summary>More</summary>\n\nInside **bold**\n\n</details>\n\n<b>x\n\n1. a\n\n   ```py\n   x = 1\n   ```\n2. b\n",
  "Line with two spaces  \nand #\n#hash\n# real\n\r\nwindows\r\nlines\r\n\r\n- [ ] todo\n- [x] done",
];
const PIECES = ["\n", "\n\n", "# ", "- ", "1. ", "> ", "```\n", "```", "$$", "$", "a", " b", "    ", "|", "|-|-|\n", "---\n", "===\n", "***\n", "[a]: b\n", "[a]", "<b>", "<div>\n", "*", "~~~\n", "\\[", "\\]", "  "];

/** A small generator with a seed: a failure can be run again. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

const shape = (stream: BlockStream, text: string) =>
  stream.update(text).map(({ start, token }) => ({ start, type: token.type, raw: token.raw }));

const html = (stream: BlockStream, text: string) =>
  stream.update(text).map(({ token }) => {
    const host = document.createElement("div");
    host.append(renderBlock(token));
    return host.innerHTML;
  });

function streamed(text: string, next: (below: number) => number): BlockStream {
  const stream = new BlockStream();
  for (let at = 0; at < text.length; ) {
    at = Math.min(text.length, at + 1 + next(12));
    stream.update(text.slice(0, at));
  }
  return stream;
}

describe("BlockStream", () => {
  it.each(TEXTS)("gives the same blocks however %j is cut", (text) => {
    for (let seed = 1; seed <= 12; seed += 1) {
      const stream = streamed(text, random(seed));
      expect(shape(stream, text)).toEqual(shape(new BlockStream(), text));
      expect(html(stream, text)).toEqual(html(new BlockStream(), text));
    }
  });

  it("does so for texts that nobody would write", () => {
    for (let seed = 1; seed <= 400; seed += 1) {
      const next = random(seed * 7919);
      const text = Array.from({ length: 24 }, () => PIECES[next(PIECES.length)]).join("");
      expect(shape(streamed(text, next), text), JSON.stringify(text)).toEqual(shape(new BlockStream(), text));
    }
  });

  it("keeps the identity of what is finished", () => {
    const stream = new BlockStream();
    const first = stream.update("One.\n\nTwo");
    const later = stream.update("One.\n\nTwo and more.\n\nThree");
    expect(later[0]).toBe(first[0]);
    expect(stream.frozenCount).toBe(1);
    expect(stream.update("One.\n\nTwo and more.\n\nThree!")[1]).toBe(later[1]);
  });

  it("starts over when the text is another one", () => {
    const stream = new BlockStream();
    stream.update("One.\n\nTwo.\n\n");
    expect(shape(stream, "Other")).toEqual([{ start: 0, type: "paragraph", raw: "Other" }]);
  });

  it("links a label whose definition comes last and without a newline", () => {
    const stream = new BlockStream();
    stream.update("See [one].\n\nMore.\n\nEven more.\n\n");
    expect(html(stream, "See [one].\n\nMore.\n\nEven more.\n\n[one]: https://one.example")[0]).toContain("https://one.example");
  });

  it("gives the clipboard plain HTML", () => {
    expect(clipboardHtml("**a**\n\n```py\nx\n```")).toBe('<p><strong>a</strong></p>\n<pre data-lang="py"><code>x</code></pre>');
  });
});
