/** First code points of Unicode's mathematical letters: capitals, small letters, digits. */
const ALPHABETS: Record<string, [number, number, number?]> = {
  bold: [0x1d400, 0x1d41a, 0x1d7ce],
  "bold-italic": [0x1d468, 0x1d482],
  script: [0x1d49c, 0x1d4b6],
  fraktur: [0x1d504, 0x1d51e],
  "double-struck": [0x1d538, 0x1d552, 0x1d7d8],
  "sans-serif": [0x1d5a0, 0x1d5ba, 0x1d7e2],
  monospace: [0x1d670, 0x1d68a, 0x1d7f6],
};
/** Letters that Unicode had already and left out of the rows above. */
const ELSEWHERE: Record<string, Record<string, string>> = {
  script: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  fraktur: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" },
  "double-struck": { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
};

/** Writes styled letters as themselves: browsers draw MathML Core, which has no `mathvariant` but "normal". */
export function spellAlphabets(math: Element): void {
  for (const node of math.querySelectorAll("[mathvariant]")) {
    const variant = node.getAttribute("mathvariant") ?? "";
    if (!(variant in ALPHABETS) || node.childElementCount > 0) continue;
    node.textContent = Array.from(node.textContent ?? "", (letter) => styled(letter, variant)).join("");
    node.setAttribute("mathvariant", "normal");
  }
}

function styled(letter: string, variant: string): string {
  const [capitals, small, digits] = ALPHABETS[variant] ?? [];
  const from = (first: number | undefined, zero: string) =>
    first === undefined ? letter : String.fromCodePoint(first + letter.charCodeAt(0) - zero.charCodeAt(0));
  const elsewhere = ELSEWHERE[variant]?.[letter];
  if (elsewhere) return elsewhere;
  if (/^[A-Z]$/.test(letter)) return from(capitals, "A");
  if (/^[a-z]$/.test(letter)) return from(small, "a");
  return /^\d$/.test(letter) ? from(digits, "0") : letter;
}
