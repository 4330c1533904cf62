import { MediaQuery } from "svelte/reactivity";
import { load, save } from "./storage";

/** What is open around the conversation, and what kind of device this is. */
class Ui {
  readonly phone = new MediaQuery("(max-width: 767px)");
  readonly touch = new MediaQuery("(pointer: coarse)");
  panel = $state(false);
  shortcuts = $state(false);
  drawer = $state(false);
  /** The search field should take the focus as soon as it is there. */
  searchWanted = $state(false);
  #pinnedOpen = $state(load("sidebar", true));

  get sidebar(): boolean {
    return this.phone.current ? this.drawer : this.#pinnedOpen;
  }

  toggleSidebar(): void {
    if (this.phone.current) this.drawer = !this.drawer;
    else {
      this.#pinnedOpen = !this.#pinnedOpen;
      save("sidebar", this.#pinnedOpen);
    }
  }

  search(): void {
    if (!this.sidebar) this.toggleSidebar();
    this.searchWanted = true;
  }
}

export const ui = new Ui();
