import { api, ApiError, onSignedOut } from "./api";
import { forgetWords, load, save } from "./storage";
import type { Identity, Role } from "./types";

/** Who last used this browser: what one person typed here is not shown to the next. */
const KEY = "who";

/** Whether this browser is signed in, and who it is; "unknown" until the server has said so. */
class Session {
  state = $state<"unknown" | "in" | "out">("unknown");
  identity = $state.raw<Identity | null>(null);
  readonly role = $derived<Role>(this.identity?.role ?? "member");
  /** A session that a key has opened may do what the key may. */
  readonly admin = $derived(this.role !== "member" && !!this.identity?.scopes.includes("admin"));
  /** Who is signed in, in a word or two. */
  readonly name = $derived(this.identity?.user?.name || this.identity?.user?.email || (this.identity ? "Owner" : ""));

  constructor() {
    onSignedOut(() => (this.state = "out"));
  }

  async check(): Promise<void> {
    try {
      this.#take(await api.session());
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) this.state = "out";
    }
  }

  async signOut(): Promise<void> {
    await api.signOut();
    this.leave();
  }

  /** After the server has ended the session. */
  leave(): void {
    forgetWords();
    save(KEY, undefined);
    location.assign("/");
  }

  #take(identity: Identity): void {
    const who = `${identity.organisation?.id ?? ""} ${identity.user?.id ?? ""}`.trimEnd();
    const before = load<string | null>(KEY, null);
    save(KEY, who);
    // An owner who makes an account stays the same person.
    if (before !== null && before !== who && !who.startsWith(`${before} `)) {
      const shown = forgetWords() || this.identity !== null;
      if (shown) return location.replace("/");
    }
    this.identity = identity;
    this.state = "in";
  }
}

export const session = new Session();
