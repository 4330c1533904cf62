import highlighter from "highlight.js/lib/core";
import type { LanguageFn } from "highlight.js";

const LANGUAGES: Record<string, () => Promise<{ default: LanguageFn }>> = {
  bash: () => import("highlight.js/lib/languages/bash"),
  c: () => import("highlight.js/lib/languages/c"),
  cpp: () => import("highlight.js/lib/languages/cpp"),
  csharp: () => import("highlight.js/lib/languages/csharp"),
  css: () => import("highlight.js/lib/languages/css"),
  diff: () => import("highlight.js/lib/languages/diff"),
  dockerfile: () => import("highlight.js/lib/languages/dockerfile"),
  elixir: () => import("highlight.js/lib/languages/elixir"),
  go: () => import("highlight.js/lib/languages/go"),
  haskell: () => import("highlight.js/lib/languages/haskell"),
  ini: () => import("highlight.js/lib/languages/ini"),
  java: () => import("highlight.js/lib/languages/java"),
  javascript: () => import("highlight.js/lib/languages/javascript"),
  json: () => import("highlight.js/lib/languages/json"),
  julia: () => import("highlight.js/lib/languages/julia"),
  kotlin: () => import("highlight.js/lib/languages/kotlin"),
  latex: () => import("highlight.js/lib/languages/latex"),
  lua: () => import("highlight.js/lib/languages/lua"),
  makefile: () => import("highlight.js/lib/languages/makefile"),
  markdown: () => import("highlight.js/lib/languages/markdown"),
  nginx: () => import("highlight.js/lib/languages/nginx"),
  perl: () => import("highlight.js/lib/languages/perl"),
  php: () => import("highlight.js/lib/languages/php"),
  powershell: () => import("highlight.js/lib/languages/powershell"),
  python: () => import("highlight.js/lib/languages/python"),
  r: () => import("highlight.js/lib/languages/r"),
  ruby: () => import("highlight.js/lib/languages/ruby"),
  rust: () => import("highlight.js/lib/languages/rust"),
  scala: () => import("highlight.js/lib/languages/scala"),
  sql: () => import("highlight.js/lib/languages/sql"),
  swift: () => import("highlight.js/lib/languages/swift"),
  typescript: () => import("highlight.js/lib/languages/typescript"),
  xml: () => import("highlight.js/lib/languages/xml"),
  yaml: () => import("highlight.js/lib/languages/yaml"),
};
const ALIASES: Record<string, string> = {
  sh: "bash", shell: "bash", zsh: "bash", console: "bash", h: "c", "c++": "cpp", cc: "cpp", hpp: "cpp",
  cs: "csharp", "c#": "csharp", docker: "dockerfile", golang: "go", hs: "haskell", toml: "ini", js: "javascript",
  jsx: "javascript", mjs: "javascript", jsonc: "json", kt: "kotlin", tex: "latex", make: "makefile", md: "markdown",
  pl: "perl", ps1: "powershell", py: "python", python3: "python", rb: "ruby", rs: "rust", ts: "typescript",
  tsx: "typescript", html: "xml", svg: "xml", vue: "xml", svelte: "xml", yml: "yaml",
};
const LONGEST = 60_000;
const CACHED = 200;
const cache = new Map<string, string>();

const canonical = (language: string) => ALIASES[language] ?? language;

/** Loads a language's grammar; an unknown one is no failure, its code stays plain. */
export async function register(language: string): Promise<void> {
  const name = canonical(language);
  const load = LANGUAGES[name];
  if (load && !highlighter.getLanguage(name)) highlighter.registerLanguage(name, (await load()).default);
}

/** HTML of the code, escaped by the highlighter; null while its language is not there. */
export function highlighted(code: string, language: string): string | null {
  const name = canonical(language);
  if (code.length > LONGEST || !highlighter.getLanguage(name)) return null;
  const key = `${name}\n${code}`;
  let html = cache.get(key);
  if (html === undefined) {
    html = highlighter.highlight(code, { language: name, ignoreIllegals: true }).value;
    if (cache.size >= CACHED) cache.clear();
    cache.set(key, html);
  }
  return html;
}
