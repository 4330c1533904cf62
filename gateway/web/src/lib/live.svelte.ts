import { followTurn } from "./turns";
import type { Message } from "./types";

const LOST_AFTER_MS = 1500;

export interface LiveEnd {
  ended(message: Message): void;
  refused(): void;
}

/** An answer as it is written. Its text changes at most once a frame, however many events come. */
export class LiveTurn {
  text = $state("");
  lost = $state(false);
  /** The reader wants to go on while the line is down. */
  asked = $state(false);
  stopping = $state(false);
  #full: string;
  #frame = 0;
  #lostTimer = 0;
  #close: () => void;

  /**
   * `base` is what the answer held before this turn's log begins; `seen` is what the reader has
   * seen of it, kept on screen until the replayed log has caught up with it.
   */
  constructor(
    readonly id: string,
    base: string,
    readonly seen: string,
    end: LiveEnd,
  ) {
    this.#full = base;
    this.text = this.#shown();
    this.#close = followTurn(id, 0, {
      event: (event) => {
        this.#online();
        if ("text" in event) this.#append(event.text);
        else end.ended("done" in event ? event.done : event.message);
      },
      back: () => this.#online(),
      lost: () => {
        this.#lostTimer ||= window.setTimeout(() => (this.lost = true), LOST_AFTER_MS);
      },
      refused: () => {
        this.lost = true;
        end.refused();
      },
    });
  }

  /** All that came, also what waits for its frame. */
  flush(): string {
    this.text = this.#shown();
    return this.text;
  }

  close(): void {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#lostTimer);
    this.#close();
  }

  #append(text: string): void {
    this.#full += text;
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.flush();
    });
  }

  #shown(): string {
    return this.#full.length >= this.seen.length ? this.#full : this.seen;
  }

  #online(): void {
    clearTimeout(this.#lostTimer);
    this.#lostTimer = 0;
    this.lost = this.asked = false;
  }
}
