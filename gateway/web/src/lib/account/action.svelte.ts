import { ApiError } from "../api";
import { problemOf, type Problem } from "../problems";

/** One thing that a person asks for: whether it runs, and why it failed. */
export class Action {
  busy = $state(false);
  problem = $state.raw<Problem | null>(null);
  /** The field that the server refused. */
  param = $state<string | null>(null);
  /** Words for statuses that mean something else here than elsewhere. */
  readonly #words: Record<number, string>;

  constructor(words: Record<number, string> = {}) {
    this.#words = words;
  }

  /** Whether it succeeded. A second call while one runs does nothing. */
  async run(deed: () => Promise<unknown>): Promise<boolean> {
    if (this.busy) return false;
    this.busy = true;
    this.clear();
    try {
      await deed();
      return true;
    } catch (error) {
      this.fail(error);
      return false;
    } finally {
      this.busy = false;
    }
  }

  fail(error: unknown): void {
    this.problem = problemOf(error);
    if (!(error instanceof ApiError)) return;
    const words = this.#words[error.status];
    // A conflict is between two accounts or the like here, not between two answers.
    if (words !== undefined || error.status === 409) this.problem = { ...this.problem, why: words ?? this.problem.why, advice: "" };
    this.param = error.body.param ?? null;
  }

  clear(): void {
    this.problem = this.param = null;
  }

  /** What to say under this field. */
  at(field: string): string {
    return this.problem && this.param === field ? this.problem.why : "";
  }

  /** What to say under the whole form: all that no field of these says. */
  beside(...fields: string[]): Problem | null {
    return this.param !== null && fields.includes(this.param) ? null : this.problem;
  }
}

/** Something of the server's on screen: what was shown stays while it is asked for again. */
export class Loaded<T> {
  value = $state.raw<T | null>(null);
  problem = $state.raw<Problem | null>(null);
  #asked = 0;

  constructor(readonly fetch: () => Promise<T>) {}

  async load(): Promise<void> {
    const asked = ++this.#asked;
    try {
      const value = await this.fetch();
      if (asked !== this.#asked) return;
      this.value = value;
      this.problem = null;
    } catch (error) {
      if (asked === this.#asked) this.problem = problemOf(error);
    }
  }
}

/** Counts down the seconds for which a server takes no more attempts. */
export class Countdown {
  left = $state(0);
  #timer = 0;

  start(seconds: number): void {
    this.stop();
    this.left = Math.ceil(seconds);
    if (this.left <= 0) return;
    const end = Date.now() + seconds * 1000;
    this.#timer = window.setInterval(() => {
      this.left = Math.max(0, Math.ceil((end - Date.now()) / 1000));
      if (this.left === 0) this.stop();
    }, 250);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.left = 0;
  }
}
