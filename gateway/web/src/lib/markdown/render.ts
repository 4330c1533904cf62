import type { Token } from "marked";
import { BlockStream } from "./blocks";
import { extras } from "./extras.svelte";
import { isClosed, language, unsafeHtml } from "./parser";
import { sanitise } from "./sanitise";

/** Safe nodes of one block. Run inside an effect, it runs again when a part it needs has loaded. */
export function renderBlock(token: Token): Node {
  if (token.type === "code") return codeNode(token.text, language(token.lang), isClosed(token.raw));
  const fragment = sanitise(unsafeHtml(token));
  for (const pre of fragment.querySelectorAll("pre")) {
    const { lang = "", open } = pre.dataset;
    pre.replaceWith(codeNode(pre.textContent ?? "", lang, !open));
  }
  for (const table of fragment.querySelectorAll("table")) table.replaceWith(tableNode(table));
  for (const span of fragment.querySelectorAll<HTMLElement>("[data-tex]")) fillMaths(span);
  return fragment;
}

/** HTML for the clipboard: safe, and free of this page's own buttons and classes. */
export function clipboardHtml(text: string): string {
  const host = document.createElement("div");
  for (const { token } of new BlockStream().update(text)) host.append(sanitise(unsafeHtml(token)));
  return host.innerHTML;
}

function codeNode(code: string, lang: string, closed: boolean): Node {
  const box = element("div", "code");
  const bar = element("div", "code-bar");
  const name = element("span", "", lang || "text");
  bar.append(name, copyButton("Copy", lang ? `Copy ${lang} code` : "Copy code"));
  const pre = element("pre");
  pre.tabIndex = 0;
  const body = element("code", "", code);
  if (closed && lang) highlight(body, code, lang);
  pre.append(body);
  box.append(bar, pre);
  return box;
}

function highlight(body: HTMLElement, code: string, lang: string): void {
  extras.wantLanguage(lang);
  const html = extras.languages > 0 ? extras.highlighter?.highlighted(code, lang) : null;
  if (html) body.innerHTML = html;
}

function tableNode(table: HTMLElement): Node {
  const box = element("div", "table");
  const scrolled = element("div", "table-scroll");
  scrolled.tabIndex = 0;
  scrolled.setAttribute("role", "region");
  scrolled.setAttribute("aria-label", "Table");
  scrolled.append(table.cloneNode(true));
  box.append(scrolled, copyButton("Copy CSV", "Copy CSV of this table"));
  return box;
}

function fillMaths(span: HTMLElement): void {
  const { tex = "", display } = span.dataset;
  span.className = display ? "maths-display" : "maths";
  extras.wantMaths();
  if (!extras.maths) return;
  span.replaceChildren(extras.maths.formula(tex, display !== undefined));
}

/** Its click is heard by MessageList. */
function copyButton(text: string, label: string): HTMLElement {
  const button = element("button", "copy", text);
  button.setAttribute("type", "button");
  button.setAttribute("aria-label", label);
  return button;
}

function element<K extends keyof HTMLElementTagNameMap>(tag: K, className = "", text = ""): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}
