import { describe, expect, it } from "vitest";
import { BlockStream } from "../src/lib/markdown/blocks";
import { renderBlock } from "../src/lib/markdown/render";

const ATTACKS = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "<svg onload=alert(1)><animate onbegin=alert(1)>",
  "<svg><style><img src=x onerror=alert(1)></style></svg>",
  "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>",
  "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
  "<a href='javascript:alert(1)'>x</a>",
  "<a href='java\nscript:alert(1)'>x</a>",
  "[x](javascript:alert(1))",
  "[x](JaVaScRiPt:alert(1))",
  "[x](data:text/html,<script>alert(1)</script>)",
  "[x](vbscript:msgbox)",
  "[x](/signin?token=theirs)",
  "![x](https://evil.example/p.png)",
  "![x](javascript:alert(1))",
  "<img data-src='javascript:alert(1)'>",
  "<form action=/api/session><input name=key><button formaction=javascript:alert(1)>x</button></form>",
  "<div style='position:fixed;inset:0' class=composer id=app>x</div>",
  "<body onload=alert(1)><base href=//evil.example><meta http-equiv=refresh content='0;url=//evil.example'>",
  "<details open ontoggle=alert(1)>x</details>",
  "<span data-tex='\\href{javascript:alert(1)}{x}'>x</span>",
  "<template><img src=x onerror=alert(1)></template>",
  "```html\n<img src=x onerror=alert(1)>\n```",
  "```\"><img src=x onerror=alert(1)>\ncode\n```",
  "- ```\"onmouseover=alert(1)\n  x\n  ```",
  "$\\href{javascript:alert(1)}{x}$ <b onclick=alert(1)>",
  "<a href='https://fine.example' target=_self rel=opener>x</a>",
];
const FORBIDDEN = "script,style,iframe,object,embed,form,input,base,meta,link,svg,template,body [style],[id],[name]";

function drawn(text: string): HTMLElement {
  const host = document.createElement("div");
  for (const { token } of new BlockStream().update(text)) host.append(renderBlock(token));
  return host;
}

describe("sanitising", () => {
  it.each(ATTACKS)("disarms %j", (attack) => {
    const host = drawn(attack);
    expect(host.querySelector(FORBIDDEN)).toBeNull();
    for (const node of host.querySelectorAll("*")) {
      for (const { name, value } of node.attributes) {
        expect(name).not.toMatch(/^on|^style$|^srcdoc$|^formaction$/);
        if (name !== "data-tex") expect(value).not.toMatch(/javascript:|vbscript:/i);
      }
    }
    for (const link of host.querySelectorAll("a[href]")) {
      expect(link.getAttribute("href")).toMatch(/^(https?:\/\/|mailto:|tel:)/);
      expect(link.getAttribute("rel")).toBe("noopener noreferrer");
      expect(link.getAttribute("target")).toBe("_blank");
    }
    expect(host.querySelector("img")).toBeNull();
  });

  it("shows a foreign image as a link", () => {
    const link = drawn("![A cat](https://pictures.example/cat.png)").querySelector("a");
    expect(link?.textContent).toBe("Image: A cat");
    expect(link?.href).toBe("https://pictures.example/cat.png");
  });

  it("shows an image that the text itself holds", () => {
    const host = drawn("![dot](data:image/png;base64,iVBORw0KGgo=)");
    expect(host.querySelector("img")?.getAttribute("alt")).toBe("dot");
  });

  it("keeps the text of code as it is", () => {
    expect(drawn("```html\n<b>&amp;</b>\n```").querySelector("code")?.textContent).toBe("<b>&amp;</b>");
  });
});
