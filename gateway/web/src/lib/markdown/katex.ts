import katex from "katex";
import { spellAlphabets } from "./alphabets";

const LIMIT = 500;
const cache = new Map<string, Node>();

/** MathML of a formula: the browser draws it, so it needs no fonts and no style sheet. */
export function formula(tex: string, display: boolean): Node {
  const key = `${display ? "d" : "i"}${tex}`;
  let node = cache.get(key);
  if (!node) {
    const host = document.createElement("span");
    katex.render(tex, host, { displayMode: display, output: "mathml", throwOnError: false, trust: false, strict: false });
    spellAlphabets(host);
    node = host.querySelector("math") ?? host;
    if (cache.size >= LIMIT) cache.clear();
    cache.set(key, node);
  }
  return node.cloneNode(true);
}
