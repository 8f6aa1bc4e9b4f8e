#!/usr/bin/env python3
"""The page of `bench --html` in a real browser: what it says, and how it looks at 400 pixels, wide, dark and on paper.

    cli/tests/page.py [--binary target/release/uringload] [--chromium chromium] [--screenshots DIR]

Makes a folder of images, reads it with a step, and opens the page in headless Chromium, without a network. Fails with a
list of what is wrong. `--screenshots` also writes `report-light.png` and `report-dark.png` of what it saw.
"""

import argparse
import html
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

WIDTHS = (400, 1280)
SECTIONS = ("Rates", "Roofline", "Throughput over time", "Latency", "Dearest samples", "Threads over time", "Threads",
            "Memory for samples", "Route and machine")
# Headings, and what stands below their chart: both are on one sheet of paper.
CHARTS = (("Roofline", "bytes of a sample"), ("Throughput over time", "time since the start"))
# What is asked of the page in the browser. It answers with what is wrong.
PROBE = """
function probe(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, wrong = [];
  const width = view.innerWidth, of = element => view.getComputedStyle(element);
  const scrolled = page.documentElement.scrollWidth;
  if (scrolled > width) wrong.push('the page scrolls sideways: ' + scrolled);
  for (const element of page.body.querySelectorAll('*')) {
    const box = element.getBoundingClientRect(), inside = element.closest('.wide,svg');
    const text = element.textContent.slice(0, 40);
    if (!inside && box.right > width + 1) wrong.push(element.tagName + ' ends at ' + box.right + ': ' + text);
    if (element.closest('svg') === null && element.textContent.trim() && parseFloat(of(element).fontSize) < 11)
      wrong.push('small text: ' + element.textContent.slice(0, 40));
  }
  const light = color => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255)
      .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const back = light(of(page.body).backgroundColor);
  for (const name of ['body', '.soft', 'h1', '.verdict b', 'td']) {
    const element = page.querySelector(name);
    if (!element) { wrong.push('no ' + name); continue; }
    const ink = light(of(element).color);
    const contrast = (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05);
    if (contrast < 4.5) wrong.push(name + ' has a contrast of ' + contrast.toFixed(1));
  }
  // Narrower, and words are broken into letters.
  for (const cell of page.querySelectorAll('td:first-child'))
    if (cell.getBoundingClientRect().width < 60) wrong.push('a narrow column: ' + cell.textContent.slice(0, 40));
  for (const drawing of page.querySelectorAll('svg')) {
    const box = drawing.getBoundingClientRect();
    if (box.width < width / 2 || box.height < 20) wrong.push('a drawing of ' + box.width + ' x ' + box.height);
    if (!drawing.getAttribute('aria-label')) wrong.push('a drawing without a label');
  }
  for (const axis of page.querySelectorAll('.xs,.ys')) {
    const boxes = [...axis.children].map(label => label.getBoundingClientRect());
    if (boxes.length < 3) wrong.push('an axis of ' + boxes.length + ' labels: ' + axis.textContent);
    for (let at = 1; at < boxes.length; at++)
      if (axis.className === 'xs' ? boxes[at].left < boxes[at - 1].right : boxes[at].bottom > boxes[at - 1].top)
        wrong.push('labels lie on each other: ' + axis.textContent);
  }
  // Names of files may be longer than a line; words are not.
  const texts = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = texts.nextNode());) {
    if (node.parentElement.closest('.name')) continue;
    for (const word of node.data.matchAll(/[^ \\n]+/g)) {
      const range = page.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
      if (lines.size > 1) wrong.push('a broken word: ' + word[0]);
    }
  }
  for (const picture of page.images) if (!picture.complete || !picture.naturalWidth) wrong.push('a broken picture');
  const fetched = view.performance.getEntriesByType('resource').filter(one => !one.name.startsWith('data:'));
  if (fetched.length) wrong.push('it fetches ' + fetched.map(one => one.name));
  const first = page.querySelector('.verdict').getBoundingClientRect();
  if (first.bottom > 900) wrong.push('the verdict ends below the first screen, at ' + first.bottom);
  return { wrong, dark: back < 0.2, text: page.body.innerText, pictures: page.images.length };
}
"""


def bitmap(path, rng):
    """A picture of a few colors, 160 by 120."""
    width, height = 160, 120
    colors = [bytes(rng.randrange(256) for _ in range(3)) for _ in range(4)]
    pixels = b"".join(colors[(x // 40 + y // 30) % 4] for y in range(height) for x in range(width))
    head = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + len(pixels), 0, 0, 54, 40, width, height, 1, 24, 0,
                       len(pixels), 2835, 2835, 0, 0)
    with open(path, "wb") as file:
        file.write(head + pixels)


def make_page(binary, folder):
    rng = random.Random(1)
    for number in range(600):
        os.makedirs(f"{folder}/data/{number % 3}", exist_ok=True)
        bitmap(f"{folder}/data/{number % 3}/{number:04}.bmp", rng)
    command = [binary, "bench", f"{folder}/data", "--shuffle", "--transform", "random_resized_crop(96), hflip",
               "--batch-size", "16", "--emulate-step", "4", "--epochs", "6", "--rounds", "2",
               "--html", f"{folder}/page.html", "--json", f"{folder}/page.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")


class Browser:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, dark, *options):
        command = [self.program, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
                   "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={self.folder}/profile",
                   "--hide-scrollbars", "--virtual-time-budget=5000",
                   f"--blink-settings=preferredColorScheme={0 if dark else 1}", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=180)

    def framed(self, width, script):
        """A page that shows the report in so many pixels."""
        path = f"{self.folder}/frame-{width}.html"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"<!DOCTYPE html><meta charset=utf-8><body style='margin:0'><iframe id=f src=page.html "
                       f"style='border:0;width:{width}px;height:1300px'></iframe><pre id=told></pre><script>{script}"
                       "</script>")
        return f"file://{path}"

    def probe(self, width, dark):
        script = PROBE + ("document.getElementById('f').onload = event => document.getElementById('told').textContent "
                          "= JSON.stringify(probe(event.target));")
        done = self.run(dark, "--window-size=1300,1300", "--dump-dom", self.framed(width, script))
        told = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
        if not told or not told[1]:
            sys.exit(f"the browser says nothing: {done.stderr[-2000:]}")
        return json.loads(html.unescape(told[1]))

    def screenshot(self, width, height, dark, to):
        self.run(dark, f"--window-size={width},{height}", f"--screenshot={to}", self.framed(width, ""))

    def paper(self):
        """The text of the page on paper, and the number of sheets."""
        pdf = f"{self.folder}/page.pdf"
        self.run(True, f"--print-to-pdf={pdf}", "--no-pdf-header-footer", f"file://{self.folder}/page.html")
        with open(pdf, "rb") as file:
            content = file.read()
        sheets = len(re.findall(rb"/Type\s*/Page\b", content))
        if not shutil.which("pdftotext"):
            return None, sheets
        return subprocess.run(["pdftotext", "-layout", pdf, "-"], capture_output=True, text=True).stdout, sheets


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/release/uringload")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--screenshots")
    arguments = parser.parse_args()
    program = shutil.which(arguments.chromium)
    if not program:
        print("skipped: no Chromium (apt-get install chromium)")
        return
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        make_page(os.path.abspath(arguments.binary), folder)
        browser = Browser(program, folder)
        with open(f"{folder}/page.json", encoding="utf-8") as file:
            report = json.load(file)
        for width in WIDTHS:
            for dark in (False, True):
                seen = browser.probe(width, dark)
                name = f"{width} px, {'dark' if dark else 'light'}"
                wrong += [f"{name}: {what}" for what in seen["wrong"]]
                text = " ".join(seen["text"].split())
                wrong += [f"{name}: no {section}" for section in SECTIONS if section not in text]
                said = [report["verdict"]["bottleneck"], report["verdict"]["remedies"][0]["what"]]
                wrong += [f"{name}: {what!r} is not within the first 1 000 letters" for what in said
                          if what not in text[:1000]]
                if seen["dark"] != dark:
                    wrong.append(f"{name}: the page is {'dark' if seen['dark'] else 'light'}")
                if seen["pictures"] != len(report["dearest_samples"]):
                    wrong.append(f"{name}: {seen['pictures']} pictures of {len(report['dearest_samples'])} samples")
        text, sheets = browser.paper()
        if not 1 <= sheets <= 12:
            wrong.append(f"paper: {sheets} sheets")
        if text is not None:
            wrong += [f"paper: no {section}" for section in SECTIONS if section not in text]
            pages = text.split("\f")
            wrong += [f"paper: the chart of {heading} is not below its heading" for heading, below in CHARTS
                      if not any(heading in page and below in page for page in pages)]
        if arguments.screenshots:
            os.makedirs(arguments.screenshots, exist_ok=True)
            browser.screenshot(900, 1300, False, f"{arguments.screenshots}/report-light.png")
            browser.screenshot(400, 1300, True, f"{arguments.screenshots}/report-dark.png")
    for what in wrong:
        print(f"wrong: {what}")
    print(f"{len(wrong)} things are wrong" if wrong else
          f"the page is as it should be at {WIDTHS} px, light, dark and on {sheets} sheets of paper")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
