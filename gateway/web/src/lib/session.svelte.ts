import { api, ApiError, onSignedOut } from "./api";
import { forgetWords } from "./storage";

/** Whether this browser is signed in; "unknown" until the server has said so. */
class Session {
  state = $state<"unknown" | "in" | "out">("unknown");

  constructor() {
    onSignedOut(() => (this.state = "out"));
  }

  async check(): Promise<void> {
    try {
      await api.session();
      this.state = "in";
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) this.state = "out";
    }
  }

  async signIn(key: string): Promise<void> {
    await api.signIn(key);
    this.state = "in";
  }

  async signOut(): Promise<void> {
    await api.signOut();
    forgetWords();
    location.assign("/");
  }
}

export const session = new Session();
