// Returns what is wrong with the page as a JSON list of texts.
(() => {
  const wrong = [];
  const shown = element => {
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    return box.width > 0 && box.height > 0 && style.visibility !== 'hidden' && style.opacity !== '0';
  };
  const name = element => {
    const id = element.id ? '#' + element.id : '', text = element.textContent.trim().slice(0, 40);
    return element.tagName.toLowerCase() + id + ' "' + text.replace(/\s+/g, ' ') + '"';
  };
  // Nothing needs the whole page to be moved sideways. A wide table may move in its own frame.
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) wrong.push(`the page is ${width} pixels wide in a window of ${innerWidth}`);
  // Without it a phone shows the page small, as on a wide screen.
  if (!document.querySelector('meta[name=viewport]')) wrong.push('the page does not name its viewport');
  // Each plot is drawn. Icons are plots too.
  for (const svg of document.querySelectorAll('svg')) {
    if (!shown(svg)) continue;
    const parts = [...svg.querySelectorAll('path, line, rect, circle, polyline, polygon, use')];
    if (!parts.some(part => { const b = part.getBoundingClientRect(); return b.width > 0 || b.height > 0; }))
      wrong.push('a drawing is empty: ' + name(svg.parentElement));
  }
  for (const image of document.images)
    if (shown(image) && (!image.complete || image.naturalWidth === 0)) wrong.push('an image is missing: ' + image.src);
  // The contrast of text, as WCAG defines it: at least 4.5, for large text 3.
  const color = text => {
    const parts = text.match(/[\d.]+/g).map(Number);
    return text.startsWith('color(srgb') ? [...parts.slice(0, 3).map(p => p * 255), parts[3] ?? 1]
                                         : [...parts.slice(0, 3), parts[3] ?? 1];
  };
  const light = ([r, g, b]) => {
    const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const paper = getComputedStyle(document.documentElement).colorScheme.includes('dark')
    && matchMedia('(prefers-color-scheme: dark)').matches && !matchMedia('print').matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
  const ground = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const c = color(getComputedStyle(e).backgroundColor);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), paper);
  };
  const pale = new Map();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || element.closest('script, style, noscript, svg') || !shown(element)) continue;
    const style = getComputedStyle(element), below = ground(element);
    const [a, b] = [light(over(color(style.color), below)), light(below)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < (large ? 3 : 4.5)) {
      const what = `${style.color} on ${below.slice(0, 3).map(Math.round)}`;
      if (!pale.has(what)) pale.set(what, `a contrast of ${contrast.toFixed(1)} (${what}): ${name(element)}`);
    }
  }
  wrong.push(...pale.values());
  return JSON.stringify(wrong);
})()
