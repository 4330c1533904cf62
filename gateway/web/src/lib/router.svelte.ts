const CONVERSATION = /^\/c\/([\w-]+)\/?$/;
const SETTINGS = /^\/settings(?:\/([\w-]*))?\/?$/;
const INVITE = /^\/invite\/([^/]+)\/?$/;

export function pathOf(conversation: string | null): string {
  return conversation ? `/c/${conversation}` : "/";
}

/** What the address names: a conversation (null is a new chat), a page of the settings over it, or an invitation. */
class Router {
  conversation = $state<string | null>(null);
  /** The tab of the settings, "" for their list; null: they are closed. */
  settings = $state<string | null>(null);
  /** The token of an invitation, as the address writes it. */
  invite = $state<string | null>(null);

  constructor() {
    this.#read();
    addEventListener("popstate", () => this.#read());
  }

  go(conversation: string | null): void {
    if (conversation === this.conversation && this.settings === null) return;
    history.pushState(null, "", pathOf(conversation));
    this.#read();
  }

  replace(conversation: string | null): void {
    if (this.settings !== null) {
      this.conversation = conversation;
      return;
    }
    history.replaceState(null, "", pathOf(conversation));
    this.#read();
  }

  openSettings(tab = ""): void {
    if (this.settings === tab) return;
    history.pushState(null, "", tab ? `/settings/${tab}` : "/settings");
    this.#read();
  }

  /** Back to the conversation that was on screen. */
  closeSettings(): void {
    if (this.settings !== null) this.go(this.conversation);
  }

  #read(): void {
    const path = location.pathname;
    const settings = SETTINGS.exec(path);
    this.settings = settings ? (settings[1] ?? "") : null;
    this.invite = INVITE.exec(path)?.[1] ?? null;
    // The conversation stays open under the settings.
    if (!settings) this.conversation = CONVERSATION.exec(path)?.[1] ?? null;
  }
}

export const router = new Router();

/** For links: a plain click stays on this page, any other is the browser's. */
export function follow(event: MouseEvent, go: () => void): void {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  go();
}
