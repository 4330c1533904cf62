/**
 * The heavy parts, loaded when a text first needs them. Reading `maths` or `highlighter` inside an
 * effect makes the effect run again once the part is there.
 */
type Maths = typeof import("./katex");
type Highlighter = typeof import("./highlight");

class Extras {
  maths = $state.raw<Maths | null>(null);
  highlighter = $state.raw<Highlighter | null>(null);
  /** Grows when a language has been registered. */
  languages = $state(0);
  #asked = new Set<string>();

  wantMaths(): void {
    this.#once("maths", async () => {
      this.maths = await import("./katex");
    });
  }

  wantLanguage(language: string): void {
    this.#once(`language ${language}`, async () => {
      const highlighter = await import("./highlight");
      await highlighter.register(language);
      this.highlighter = highlighter;
      this.languages += 1;
    });
  }

  #once(name: string, load: () => Promise<void>): void {
    if (this.#asked.has(name)) return;
    this.#asked.add(name);
    load().catch(() => this.#asked.delete(name));
  }
}

export const extras = new Extras();
