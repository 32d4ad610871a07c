"""The documentation site."""

import base64
import hashlib
from pathlib import Path, PurePosixPath

import pytest
import yaml

from app.console.guide import found, policy_of
from docs.guide import within

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_menu() -> None:
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = {
        page
        for part in menu
        for pages in part.values()
        for page in ([pages] if isinstance(pages, str) else pages)
    }
    assert {path.name for path in (ROOT / "docs").glob("*.md")} == listed - {"index.md"}


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("README.md", "[a](docs/usage.md#x)", "[a](usage.md#x)"),
        ("README.md", "![a](docs/flow.svg)", "![a](flow.svg)"),
        ("README.md", "[a](LICENSE)", "a"),
        ("docs/usage.md", "[a](../README.md#quickstart)", "[a](index.md#quickstart)"),
        ("docs/usage.md", "[`a`](../worker/device.py)", "`a`"),
        ("docs/usage.md", "[a](decisions/0041-groups.md)", "[a](decisions/0041-groups.md)"),
        ("docs/decisions/0041-groups.md", "[a](../usage.md)", "[a](../usage.md)"),
        ("docs/decisions/0041-groups.md", "[a](../../tests/gpu)", "a"),
        ("docs/usage.md", "[a](https://tvm.apache.org)", "[a](https://tvm.apache.org)"),
        ("docs/usage.md", "[a](#below)", "[a](#below)"),
    ],
)
def test_links_stay_within_the_site(page: str, link: str, expected: str) -> None:
    assert within(link, PurePosixPath(page)) == expected


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("", "index.html"),
        ("usage/", "usage/index.html"),
        ("usage/index.html", "usage/index.html"),
        ("usage", None),
        ("missing/", None),
        ("../secret", None),
        ("usage/../../secret", None),
        ("/etc/passwd", None),
        ("a\0b", None),
        ("x" * 300, None),
        ("\u00e9" * 200, None),
        ("x" * 5000, None),
    ],
)
def test_only_files_of_the_site_are_found(tmp_path: Path, name: str, file: str | None) -> None:
    site = tmp_path / "site"
    (site / "usage").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    for each in ("index.html", "usage/index.html"):
        (site / each).write_text("page")
    assert found(site, name) == (None if file is None else (site / file).resolve())


def test_a_page_runs_its_own_scripts_and_no_other() -> None:
    code = b"document.title = 1"
    page = (
        b"<script>" + code + b'</script><script src="a.js"></script>'
        b'<script id="c" type="application/json">{"a": 1}</script>'
    )
    digest = base64.b64encode(hashlib.sha256(code).digest()).decode()
    policy = policy_of(page)
    assert f"script-src 'self' 'sha256-{digest}';" in policy
    assert policy.count("sha256-") == 1
    assert "unsafe" not in policy and "default-src 'none'" in policy
