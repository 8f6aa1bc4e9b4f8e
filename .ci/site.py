#!/usr/bin/env python3
"""What the site takes besides mdbook: as its preprocessor, links to what is no page of the site become links to the
repository; and `.ci/site.py --check FOLDER` tells what links of a built site lead nowhere, and which pages it lacks.
"""

import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/uringload/uringload/blob/main/"


def listed():
    """The pages of the site."""
    return set(re.findall(r"\(([\w-]+\.md)\)", (ROOT / "docs/SUMMARY.md").read_text(encoding="utf-8")))


def outward(page, text):
    """The text of a page, with links to what is no page of the site made absolute."""
    def absolute(match):
        path, _, heading = match[2].partition("#")
        file = (ROOT / "docs" / page).parent.joinpath(path).resolve()
        if path in listed() or not file.exists():
            return match[0]
        return f"{match[1]}{REPOSITORY}{file.relative_to(ROOT)}{'#' + heading if heading else ''}"

    return re.sub(r"(\]\()(?!\w+:|#)([^)\s]+)", absolute, text)


def chapters(items):
    for item in items:
        if chapter := isinstance(item, dict) and item.get("Chapter"):
            yield chapter
            yield from chapters(chapter["sub_items"])


def check(site):
    wrong, ids = [], {}
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    for page, text in pages.items():
        ids[page.resolve()] = set(re.findall(r'id="([^"]+)"', text))
    for page, text in pages.items():
        for link in re.findall(r'<a [^>]*href="([^"]+)"', text.split("<main>")[-1].split("</main>")[0]):
            if re.match(r"\w+:", link):
                continue
            path, heading = urldefrag(unquote(link))
            file = (page.parent / path if path else page).resolve()
            if not file.exists() or heading and heading not in ids.get(file, {heading}):
                wrong.append(f"{page.relative_to(site)}: {link}")
    lacking = {page.name for page in (ROOT / "docs").glob("*.md")} - {"SUMMARY.md"} - listed()
    wrong += [f"docs/SUMMARY.md lacks {page}" for page in sorted(lacking)]
    print("\n".join(wrong) or f"{len(pages)} pages, and no link that leads nowhere")
    sys.exit(bool(wrong))


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    if sys.argv[1:2] == ["--check"]:
        check(Path(sys.argv[2]))
    _, book = json.load(sys.stdin)
    for chapter in chapters(book["sections"]):
        if chapter["path"]:
            chapter["content"] = outward(chapter["path"], chapter["content"])
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
