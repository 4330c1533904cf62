/** What a screen reader is told; drawn by components/Announcer.svelte. */
class Announcer {
  text = $state("");

  say(text: string): void {
    this.text = text;
  }
}

export const announcer = new Announcer();
