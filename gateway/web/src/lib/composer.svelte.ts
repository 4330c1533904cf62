import { drafts } from "./drafts";

/** The text being typed; saved at every stroke, by conversation. */
class Composer {
  text = $state(drafts.get(null));
  /** Grows when the field should take the focus. */
  focuses = $state(0);
  #conversation: string | null = null;

  open(conversation: string | null): void {
    this.#conversation = conversation;
    this.text = drafts.get(conversation);
    this.focuses += 1;
  }

  /** The new chat got its address; what was typed meanwhile goes with it. */
  moved(conversation: string): void {
    this.#conversation = conversation;
  }

  type(text: string): void {
    this.text = text;
    drafts.set(this.#conversation, text);
  }

  /** Puts text there for the person to go on with. */
  put(text: string): void {
    this.type(this.text.trim() ? `${text}\n\n${this.text}` : text);
    this.focuses += 1;
  }
}

export const composer = new Composer();
