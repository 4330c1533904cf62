import { Marked, type Token, type Tokens } from "marked";
import { escapeHtml } from "./escape";
import { mathsBlock, mathsInline } from "./maths";

/** Link definitions by label: `[label]: address`. They may come long after the text that uses them. */
export type Definitions = Record<string, { href: string; title: string }>;

/** One line only. CommonMark's titles may span lines, which would let later text undo a frozen block. */
const DEFINITION =
  /^ {0,3}\[([^\]\n]+)\]:[ \t]*<?([^\s>]+)>?(?:[ \t]+(?:"([^"\n]*)"|'([^'\n]*)'|\(([^()\n]*)\)))?[ \t]*(?:\n+|$)/;

/**
 * Handlers of raw HTML, renamed before they are parsed. `sanitise` would remove them in any case, but the browser
 * reports each one that it parses as a breach of the page's policy, and a real breach must not drown among them.
 */
const TAG = /<[a-z][^>]*>/gi;
const HANDLER = /([\s"'/])(on\w+\s*=)/gi;

const marked = new Marked({ gfm: true, breaks: true });
marked.use({
  extensions: [mathsBlock, mathsInline],
  tokenizer: {
    def(src): Tokens.Def | undefined {
      const match = DEFINITION.exec(src);
      if (!match?.[1] || !match[2]) return undefined;
      const tag = normalLabel(match[1]);
      const title = match[3] ?? match[4] ?? match[5] ?? "";
      return { type: "def", tag, raw: match[0], href: match[2], title };
    },
  },
  renderer: {
    code: ({ text, lang, raw }) =>
      `<pre data-lang="${escapeHtml(language(lang))}"${isClosed(raw) ? "" : ' data-open="1"'}><code>${escapeHtml(text)}</code></pre>`,
    html: ({ text }) => text.replace(TAG, (tag) => tag.replace(HANDLER, "$1data-$2")),
    checkbox: ({ checked }) => `<span>${checked ? "☑" : "☐"} </span>`,
  },
});

export function normalLabel(label: string): string {
  return label.toLowerCase().replace(/\s+/g, " ").trim();
}

export function language(info: string | undefined): string {
  return /^[\w+#.-]+/.exec(info ?? "")?.[0].toLowerCase() ?? "";
}

/** Whether a fenced block has its closing fence; an indented block has none and needs none. */
export function isClosed(raw: string): boolean {
  const open = /^ {0,3}(`{3,}|~{3,})/.exec(raw)?.[1];
  if (!open) return true;
  const lines = raw.trimEnd().split("\n");
  const last = lines.at(-1)?.trim() ?? "";
  return lines.length > 1 && last.length >= open.length && last === open[0]?.repeat(last.length);
}

export function lex(text: string, definitions: Definitions): Token[] {
  const lexer = new marked.Lexer(marked.defaults);
  Object.assign(lexer.tokens.links, definitions);
  return lexer.lex(text);
}

/** HTML that is not yet safe: it holds whatever HTML the text held. */
export function unsafeHtml(token: Token): string {
  return marked.parser([token]);
}
