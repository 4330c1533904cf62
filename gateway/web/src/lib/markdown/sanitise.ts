import createPurifier from "dompurify";

const TAGS = (
  "a abbr b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p " +
  "pre s samp small span strong sub summary sup table tbody td tfoot th thead tr u ul var"
).split(" ");
const PLAIN = "alt title colspan rowspan align start open data-lang data-open data-tex data-display".split(" ");
const ADDRESSED = ["href", "src", "data-src"];
/** No relative addresses: a model could point one at this server's own /signin or /api. */
const ADDRESSES = /^(?:https?:\/\/|mailto:|tel:)/i;
const OWN_IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;

/** A document without a window: in it nothing loads, and what is not allowed is no breach of the page's policy yet. */
const inert = document.createElement("template").content.ownerDocument;
const purifier = createPurifier(window);

purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
  if (node.nodeName === "IMG") {
    const source = node.getAttribute("src") ?? "";
    if (OWN_IMAGE.test(source)) return;
    // Here, while the node is inert: in the live document it would start to load.
    node.removeAttribute("src");
    if (ADDRESSES.test(source)) node.setAttribute("data-src", source);
    else node.removeAttribute("data-src");
  }
});

/** Safe nodes of unsafe HTML. Foreign images come out as links: showing one would tell its host. */
export function sanitise(html: string): DocumentFragment {
  const host = inert.createElement("div");
  host.innerHTML = html;
  purifier.sanitize(host, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: [...PLAIN, ...ADDRESSED],
    ADD_URI_SAFE_ATTR: PLAIN,
    ALLOWED_URI_REGEXP: ADDRESSES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    IN_PLACE: true,
  });
  for (const image of host.querySelectorAll("img:not([src])")) image.replaceWith(linkTo(image));
  const fragment = document.createDocumentFragment();
  fragment.append(...host.childNodes);
  return fragment;
}

function linkTo(image: Element): Node {
  const address = image.getAttribute("data-src");
  const label = image.getAttribute("alt") || address || "image";
  if (!address) return document.createTextNode(label);
  const link = document.createElement("a");
  link.href = address;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  link.textContent = `Image: ${label}`;
  return link;
}
