import type { Token } from "marked";
import { isClosed, lex, normalLabel, type Definitions } from "./parser";

/** A top-level block of the text. The same object means the same rendering. */
export interface Block {
  start: number;
  token: Token;
}

const SELF_CONTAINED = new Set(["heading", "hr", "mathsBlock"]);

/**
 * Splits a growing text into blocks. Blocks that no later text can change are frozen: they are
 * parsed once and keep their identity. What comes out is a function of the text alone, however
 * it was cut into pieces.
 */
export class BlockStream {
  #text = "";
  #frozen: Block[] = [];
  #tail: Block[] = [];
  #tailStart = 0;
  #scanned = 0;
  #firmDefinitions: Definitions = {};
  #definitions: Definitions = {};

  get frozenCount(): number {
    return this.#frozen.length;
  }

  /** Takes the whole text so far and gives its blocks. */
  update(source: string): Block[] {
    const text = source.replaceAll("\r", "");
    if (!text.startsWith(this.#text)) this.#reset();
    this.#text = text;
    this.#freeze();
    this.#tail = this.#parseTail();
    return [...this.#frozen, ...this.#tail];
  }

  #reset(): void {
    this.#frozen = [];
    this.#tail = [];
    this.#tailStart = this.#scanned = 0;
    this.#firmDefinitions = this.#definitions = {};
  }

  /** Only whole lines count: half a line can still become anything ("#" a heading, "#x" a word). */
  #freeze(): void {
    const end = this.#text.lastIndexOf("\n") + 1;
    if (end <= this.#scanned) return;
    this.#scanned = end;
    const blocks = placed(lex(this.#text.slice(this.#tailStart, end), this.#firmDefinitions), this.#tailStart);
    const lastIndex = blocks.findLastIndex(({ token }) => token.type !== "space");
    const cut = blocks.findLastIndex((_, index) => index <= lastIndex && index > 0 && this.#isFirm(blocks, index));
    if (cut <= 0) return;
    const firm = blocks.slice(0, cut);
    this.#tailStart = blocks[cut]?.start ?? this.#tailStart;
    for (const block of firm) this.#keep(block);
  }

  /** Whether nothing that may follow can join what lies before blocks[index] to it. */
  #isFirm(blocks: Block[], index: number): boolean {
    const before = blocks[index - 1]?.token;
    const start = blocks[index]?.start ?? 0;
    if (!before || blocks[index]?.token.type === "space") return false;
    if (this.#text.slice(0, start).endsWith("\n\n")) return true;
    if (before.type === "code") return before.codeBlockStyle !== "indented" && isClosed(before.raw);
    return SELF_CONTAINED.has(before.type) && !/\n *(=+|-+) *\n*$/.test(before.raw);
  }

  #keep(block: Block): void {
    if (block.token.type === "def") this.#firmDefinitions = defined(this.#firmDefinitions, block.token);
    else if (block.token.type !== "space") this.#frozen.push(this.#tail.find((old) => same(old, block)) ?? block);
  }

  #parseTail(): Block[] {
    const blocks = placed(lex(this.#text.slice(this.#tailStart), this.#firmDefinitions), this.#tailStart);
    this.#link(blocks.reduce((known, { token }) => defined(known, token), this.#firmDefinitions));
    return blocks
      .filter(({ token }) => token.type !== "space" && token.type !== "def")
      .map((block) => this.#tail.find((old) => same(old, block)) ?? block);
  }

  /** Parses again the blocks that use a link whose definition has come or grown. */
  #link(definitions: Definitions): void {
    const before = this.#definitions;
    this.#definitions = definitions;
    const tags = new Set([...Object.keys(before), ...Object.keys(definitions)]);
    const changed = [...tags].filter((tag) => before[tag]?.href !== definitions[tag]?.href || before[tag]?.title !== definitions[tag]?.title);
    if (changed.length === 0) return;
    const again = (block: Block): Block => {
      const raw = normalLabel(block.token.raw);
      const token = changed.some((tag) => raw.includes(`[${tag}]`)) && lex(block.token.raw, definitions)[0];
      return token ? { start: block.start, token } : block;
    };
    this.#frozen = this.#frozen.map(again);
    this.#tail = this.#tail.map(again);
  }
}

function defined(known: Definitions, token: Token): Definitions {
  if (token.type !== "def" || token.tag in known) return known;
  return { ...known, [token.tag]: { href: token.href, title: token.title } };
}

function same(a: Block, b: Block): boolean {
  return a.start === b.start && a.token.type === b.token.type && a.token.raw === b.token.raw;
}

function placed(tokens: Token[], from: number): Block[] {
  let start = from;
  return tokens.map((token) => {
    const block = { start, token };
    start += token.raw.length;
    return block;
  });
}
