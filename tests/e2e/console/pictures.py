"""The pictures of the guide, which tests take of the console's pages."""

import os
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

PICTURES = Path(__file__).parents[3] / "docs" / "console"
WRITES = bool(os.environ.get("CONSOLE_PICTURES"))
"""Whether to write the pictures again: with the variable ``CONSOLE_PICTURES``."""
SIZE = {"width": 1200, "height": 860}
SCHEMES = ("light", "dark")
MOST_BYTES = 2 << 20


def save(page: Page, name: str, scheme: str, folder: Path) -> None:
    """Take a picture of a page, and check that it has the colors of its scheme."""
    picture = Image.open(BytesIO(page.screenshot()))
    target = PICTURES if WRITES else folder
    target.mkdir(exist_ok=True)
    picture.convert("RGB").quantize(128).save(target / f"{name}-{scheme}.png", optimize=True)
    corner = picture.convert("L").getpixel((4, picture.height - 4))
    assert isinstance(corner, int) and (corner < 64) is (scheme == "dark")
    assert sum(file.stat().st_size for file in PICTURES.glob("*.png")) < MOST_BYTES
