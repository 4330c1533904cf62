const ROUTE = /^\/c\/([\w-]+)\/?$/;

function conversationIn(path: string): string | null {
  return ROUTE.exec(path)?.[1] ?? null;
}

export function pathOf(conversation: string | null): string {
  return conversation ? `/c/${conversation}` : "/";
}

/** Which conversation the address names; null is a new chat. */
class Router {
  conversation = $state<string | null>(conversationIn(location.pathname));

  constructor() {
    addEventListener("popstate", () => (this.conversation = conversationIn(location.pathname)));
  }

  go(conversation: string | null): void {
    if (conversation === this.conversation) return;
    history.pushState(null, "", pathOf(conversation));
    this.conversation = conversation;
  }

  replace(conversation: string | null): void {
    history.replaceState(null, "", pathOf(conversation));
    this.conversation = conversation;
  }
}

export const router = new Router();
