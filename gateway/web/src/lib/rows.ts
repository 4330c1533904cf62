const MARGIN_PX = 1200;

type Show = (near: boolean) => void;

/**
 * Says which rows of a scrolled list are near the window. A row that is far away is drawn as an
 * empty box of its measured height, so a long conversation costs what is on screen.
 */
export class RowWindow {
  #observer: IntersectionObserver | null = null;
  #shows = new WeakMap<Element, Show>();
  #heights = new Map<string, number>();
  /** Where the browser does not hold the reader's place itself when a row above it changes. */
  #anchor = CSS.supports("overflow-anchor", "auto") ? null : new ResizeObserver((entries) => this.#holdPlace(entries));
  #sizes = new WeakMap<Element, number>();

  watch(row: HTMLElement, show: Show): () => void {
    // Here and not on mounting: rows are mounted before the list that holds them.
    const observer = (this.#observer ??= this.#observe(row.closest("[role=log]")));
    this.#shows.set(row, show);
    observer.observe(row);
    this.#anchor?.observe(row);
    return () => {
      observer.unobserve(row);
      this.#anchor?.unobserve(row);
    };
  }

  #observe(root: Element | null): IntersectionObserver {
    const options = { root, rootMargin: `${MARGIN_PX}px 0px` };
    return new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.#shows.get(target)?.(isIntersecting);
    }, options);
  }

  #holdPlace(entries: ResizeObserverEntry[]): void {
    for (const { target } of entries) {
      const { height, top } = target.getBoundingClientRect();
      const before = this.#sizes.get(target);
      this.#sizes.set(target, height);
      const scroller = target.closest("[role=log]");
      if (before === undefined || !scroller) continue;
      if (top + before <= scroller.getBoundingClientRect().top) scroller.scrollTop += height - before;
    }
  }

  height(id: string, guess: number): number {
    return this.#heights.get(id) ?? guess;
  }

  measured(id: string, height: number): void {
    this.#heights.set(id, height);
  }
}

/** A first guess in pixels, until the row has been drawn once. */
export function guessHeight(text: string): number {
  return 96 + Math.ceil(text.length / 80) * 26;
}
