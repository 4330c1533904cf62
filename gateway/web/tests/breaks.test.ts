import { expect, it } from "vitest";
import { BlockStream } from "../src/lib/markdown/blocks";
import { sanitise } from "../src/lib/markdown/sanitise";
import { unsafeHtml } from "../src/lib/markdown/parser";

it("keeps the lines of a verse", () => {
  const [block] = new BlockStream().update("The sky whispers,\nthe choir answers.");
  expect(sanitise(unsafeHtml(block!.token)).querySelectorAll("br")).toHaveLength(1);
});
