"""What mkdocs does with these pages beside rendering them: the README is the first, and links stay within."""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = PurePosixPath("docs")
README, START = PurePosixPath("README.md"), "index.md"
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<address>[^()\s]+)\)")


def within(markdown: str, place: PurePosixPath) -> str:
    """A page whose links to files outside of the site are only their texts.

    Args:
        markdown: the page.
        place: its path in the repository.
    """
    page = DOCS / START if place == README else place

    def replaced(link: re.Match[str]) -> str:
        address, hash_sign, fragment = link["address"].partition("#")
        if not address or "://" in address or address.startswith(("mailto:", "/")):
            return link[0]
        target = PurePosixPath(normpath(place.parent / address))
        if target == README:
            target = DOCS / START
        if not target.is_relative_to(DOCS) or target.suffix == ".py":
            return link["text"]
        return f"{link['image']}[{link['text']}]({relpath(target, page.parent)}{hash_sign}{fragment})"

    return _LINK.sub(replaced, markdown)


def on_config(config: Any) -> Any:
    """List the decisions behind the other pages."""
    decisions = sorted(path.name for path in (ROOT / DOCS / "decisions").glob("*.md"))
    config.nav.append({"Decisions": [f"decisions/{name}" for name in decisions]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the README as the first page, and the console's icon."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, START, content=(ROOT / README).read_text(encoding="utf-8")))
    icon = ROOT / "app/console/static/icon.svg"
    files.append(File.generated(config, "icon.svg", abs_src_path=str(icon)))
    return files


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """Keep the links within the site."""
    source = page.file.src_uri
    return within(markdown, README if source == START else DOCS / source)


def on_post_build(config: Any) -> None:
    """Leave out what only developers of the theme need."""
    for path in Path(config.site_dir).rglob("*.map"):
        path.unlink()
