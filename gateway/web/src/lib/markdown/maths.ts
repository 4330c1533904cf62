import type { TokenizerAndRendererExtension, Tokens } from "marked";
import { escapeHtml } from "./escape";

export interface MathsToken extends Tokens.Generic {
  type: "mathsBlock" | "mathsInline";
  tex: string;
  display: boolean;
  closed: boolean;
}

const BLOCK = /^ {0,3}(?:\$\$((?:(?!\n[ \t]*\n)[^$])+?)\$\$|\\\[((?:(?!\n[ \t]*\n|\\\])[\s\S])+?)\\\])[ \t]*(?:\n+|$)/;
/** An opened block without its end yet; a blank line says that it was no maths after all. */
const OPEN_BLOCK = /^ {0,3}(?:\$\$(?:(?!\n[ \t]*\n|\$\$)[\s\S])*|\\\[(?:(?!\n[ \t]*\n|\\\])[\s\S])*)$/;
const INLINE = [
  /^\$\$((?:(?!\n[ \t]*\n)[^$])+?)\$\$/,
  /^\\\[((?:(?!\n[ \t]*\n|\\\])[\s\S])+?)\\\]/,
  /^\\\(((?:(?!\\\))[\s\S])+?)\\\)/,
  /^\$(?=[^\s$])((?:\\.|[^$\\\n])*?[^\s\\$]|[^\s\\$])\$(?![\d\w$])/,
] as const;
const INLINE_START = /(?<![\w$\\])\$(?=\S)|\$\$|\\[([]/;
const WORD = /(?<![\\a-zA-Z{])[a-zA-Z]{2,}/;

/** "$5 or 10$" has the marks of maths but words between numbers: those are prices. */
function isPrice(tex: string): boolean {
  return /^[\d.,]/.test(tex) && WORD.test(tex.replace(/\\[a-zA-Z]+(\{[^}]*\})?/g, ""));
}

const render = (token: Tokens.Generic): string => {
  const { tex, display, closed, raw } = token as MathsToken;
  if (!closed) return `<p>${escapeHtml(raw)}</p>`;
  const source = escapeHtml(tex);
  return `<span data-tex="${source}"${display ? ' data-display="1"' : ""}>${source}</span>`;
};

export const mathsBlock: TokenizerAndRendererExtension = {
  name: "mathsBlock",
  level: "block",
  start: (src) => {
    const at = src.search(/\n {0,3}(?:\$\$|\\\[)/);
    return at < 0 ? undefined : at + 1;
  },
  tokenizer(src): MathsToken | undefined {
    const closed = BLOCK.exec(src);
    const match = closed ?? OPEN_BLOCK.exec(src);
    if (!match) return undefined;
    const tex = (match[1] ?? match[2] ?? "").trim();
    return { type: "mathsBlock", raw: match[0], tex, display: true, closed: closed !== null };
  },
  renderer: render,
};

export const mathsInline: TokenizerAndRendererExtension = {
  name: "mathsInline",
  level: "inline",
  start: (src) => {
    const at = src.search(INLINE_START);
    return at < 0 ? undefined : at;
  },
  tokenizer(src): MathsToken | undefined {
    for (const [index, pattern] of INLINE.entries()) {
      const match = pattern.exec(src);
      const tex = match?.[1]?.trim();
      if (!match || !tex || (index === 3 && isPrice(tex))) continue;
      return { type: "mathsInline", raw: match[0], tex, display: index < 2, closed: true };
    }
    return undefined;
  },
  renderer: render,
};
