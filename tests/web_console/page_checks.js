// Measurements of a rendered page, which `page_checks.py` evaluates.
({
  // Layout faults: overlaps, broken words, elements beyond the edge.
  layout([controls, side, letters]) {
    const faults = new Set();
    const name = it => `${it.tagName} ${(it.innerText ?? "").slice(0, 40)}`;
    const root = document.scrollingElement, width = root.clientWidth;
    if (root.scrollWidth > width) faults.add(`page is ${root.scrollWidth} px wide`);

    const boxes = [];
    for (const it of document.querySelectorAll(controls)) {
      if (it.matches(".skip")) continue;
      for (const box of it.getClientRects()) {
        if (!box.width || !box.height) continue;
        boxes.push([it, box]);
        const isOut = box.left < -1 || box.right > width + 1;
        if (isOut && !it.closest(".scroll")) faults.add(`sticks out: ${name(it)}`);
        if (!it.matches("a") && Math.min(box.width, box.height) < side)
          faults.add(`small: ${name(it)} ${box.width} x ${box.height}`);
      }
    }
    boxes.forEach(([one, a], index) => {
      for (const [other, b] of boxes.slice(index + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (one !== other && across > 1 && down > 1)
          faults.add(`overlap: ${name(one)} / ${name(other)}`);
      }
    });

    const range = document.createRange();
    const lines = () => {
      const seen = [...range.getClientRects()].filter(it => it.width);
      return new Set(seen.map(it => Math.round(it.top))).size;
    };
    for (const node of this.texts("option, textarea")) {
      for (const found of node.data.matchAll(/[^\s-]+/gu)) {
        // Line breaks are allowed at punctuation.
        const isWord = /^[\p{L}\p{N}]+[.,:]?$/u.test(found[0]);
        if (!isWord || found[0].length > letters) continue;
        range.setStart(node, found.index);
        range.setEnd(node, found.index + found[0].length);
        if (lines() > 1) faults.add(`broken word: ${found[0]}`);
      }
    }
    for (const cell of document.querySelectorAll("tbody .n")) {
      range.selectNodeContents(cell);
      if (lines() > 1) faults.add(`number on two lines: ${name(cell)}`);
    }
    return [...faults];
  },

  // Pairs of colours of text, of control edges and of chart lines.
  colours([controls]) {
    const found = new Map();
    const add = (kind, colour, back, it, sample) => {
      const style = getComputedStyle(it), size = parseFloat(style.fontSize);
      const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
      const row = {kind: kind === "text" && isLarge ? "large" : kind, colour, back};
      found.set(JSON.stringify(row), {...row, sample});
    };
    for (const node of this.texts("option")) {
      const it = node.parentElement, text = node.data.trim();
      if (text) add("text", getComputedStyle(it).color, this.behind(it), it, text);
    }
    for (const it of document.querySelectorAll(controls)) {
      if (it.matches("a")) continue;
      const style = getComputedStyle(it), outside = this.behind(it.parentElement);
      add("text", style.color, this.behind(it), it, it.name);
      const isFilled = it.matches("button") && this.behind(it) !== outside;
      const edge = isFilled ? this.behind(it) : style.borderTopColor;
      add("graphic", edge, outside, it, it.name);
    }
    for (const it of document.querySelectorAll("polyline"))
      add("graphic", getComputedStyle(it).stroke, this.behind(it.parentElement), it, "line");
    for (const it of document.querySelectorAll(".fill")) {
      const track = getComputedStyle(it.previousElementSibling).fill;
      add("graphic", getComputedStyle(it).fill, track, it, "bar");
    }
    return [...found.values()];
  },

  // The focused element; null if the page itself has the focus.
  focused([controls]) {
    const it = document.activeElement;
    if (it === document.body) return null;
    const style = getComputedStyle(it), box = it.getBoundingClientRect();
    const isBeside = box.right > 0 && box.left < innerWidth;
    return {
      index: [...document.querySelectorAll("*")].indexOf(it),
      is_control: it.matches(controls),
      text: (it.innerText ?? "").trim(),
      name: it.name ?? "",
      top: box.top + scrollY,
      bottom: box.bottom + scrollY,
      left: box.left + scrollX,
      is_in_view: isBeside && box.bottom > 0 && box.top < innerHeight,
      has_outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
      outline: style.outlineColor,
      back: this.behind(it.parentElement),
    };
  },

  *texts(but) {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode())
      if (!node.parentElement.closest(but)) yield node;
  },

  behind(it) {
    const colour = it => getComputedStyle(it).backgroundColor;
    while (it.parentElement && colour(it) === "rgba(0, 0, 0, 0)") it = it.parentElement;
    return colour(it);
  },
})
