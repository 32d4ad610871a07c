"""``/docs``: the OpenAPI document as a page without scripts or requests to other hosts.

It names the host of the request, so no cache may keep it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from app.openapi.document import EXAMPLE_URL

Document = Mapping[str, Any]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; border-bottom: 1px solid #8886; } h3 { margin-top: 2rem; }
code, pre { font: 0.9em ui-monospace, monospace; }
pre { padding: 0.75rem; overflow: auto; background: #8882; }
.wide { overflow-x: auto; margin: 1rem 0; } h3 code { font-size: 1rem; } table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; border-top: 1px solid #8884; }
"""
_REFERENCE = "#/components/schemas/"
_CODE = re.compile(r"`([^`]+)`")


def install(app: FastAPI) -> None:
    """Serve the page of an app at ``/docs``."""

    async def reference(request: Request) -> HTMLResponse:
        text = page(app.openapi(), str(request.base_url).rstrip("/"))
        headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "no-store"}
        return HTMLResponse(text, headers=headers)

    app.add_api_route("/docs", reference, methods=["GET", "HEAD"], include_in_schema=False)


def page(document: Document, url: str = EXAMPLE_URL) -> str:
    """An OpenAPI document as HTML.

    Args:
        document: the document.
        url: the service's address, which replaces the example address in commands.
    """
    info = document["info"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        _prose(info["description"]),
        '<p>Machine-readable: <a href="openapi.json">openapi.json</a>.</p>',
        *(part for tag in document["tags"] for part in _tag(tag, document["paths"])),
        "<h2>Documents</h2>",
        *(
            part
            for name, schema in document["components"]["schemas"].items()
            for part in _schema(name, schema)
        ),
    ]
    head = f'<meta charset="utf-8"><title>{escape(info["title"])}</title><style>{STYLE}</style>'
    body = "".join(parts).replace(EXAMPLE_URL, escape(url))
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def _tag(tag: Document, paths: Document) -> Iterator[str]:
    yield f"<h2>{escape(tag['name'].capitalize())}</h2>{_prose(tag['description'])}"
    for path, operations in paths.items():
        for method, operation in operations.items():
            if tag["name"] in operation["tags"]:
                yield from _operation(method, path, operation)


def _operation(method: str, path: str, operation: Document) -> Iterator[str]:
    name = operation["operationId"]
    yield f'<h3 id="{escape(name)}"><code>{method.upper()} {escape(path)}</code></h3>'
    yield f"<p><b>{escape(operation['summary'])}.</b></p>{_prose(operation.get('description', ''))}"
    parameters = operation.get("parameters", ())
    if parameters:
        rows = [(f"<code>{escape(p['name'])}</code>", p["in"], *_field(p["schema"], p)) for p in parameters]
        yield _table(("parameter", "in", "type", "default", ""), rows)
    if "requestBody" in operation:
        yield f"<p>Body: {_contents(operation['requestBody'])}</p>"
        yield from _examples(operation["requestBody"])
    responses = sorted(operation["responses"].items())
    yield _table(("status", "", "body"), [(s, _inline(r["description"]), _contents(r)) for s, r in responses])


def _schema(name: str, schema: Document) -> Iterator[str]:
    yield f'<h3 id="{escape(name)}">{escape(name)}</h3>{_prose(schema.get("description", ""))}'
    if "properties" not in schema:
        yield f"<p>{_type(schema)}</p>"
        return
    required = schema.get("required", ())
    rows = [
        (f"<code>{escape(key)}</code>{' *' if key in required else ''}", *_field(field, field))
        for key, field in schema["properties"].items()
    ]
    yield _table(("field (* required)", "type", "default", ""), rows)


def _field(schema: Document, described: Document) -> tuple[str, str, str]:
    default = f"<code>{escape(json.dumps(schema['default']))}</code>" if "default" in schema else ""
    return _type(schema), default, _inline(described.get("description", ""))


def _type(schema: Document) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REFERENCE))
        return f'<a href="#{name}">{name}</a>'
    for several in ("anyOf", "oneOf", "prefixItems"):
        if several in schema:
            return " or ".join(_type(one) for one in schema[several])
    values = schema.get("enum", [schema["const"]] if "const" in schema else ())
    if values:
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    kind = str(schema.get("type", "any"))
    return f"array of {_type(schema['items'])}" if "items" in schema else escape(kind)


def _contents(body: Document) -> str:
    return "; ".join(
        f"<code>{escape(media)}</code> {_type(content['schema']) if 'schema' in content else ''}"
        for media, content in body.get("content", {}).items()
    )


def _examples(body: Document) -> Iterator[str]:
    for content in body.get("content", {}).values():
        for example in content.get("examples", {}).values():
            yield f"<p>{_inline(example['summary'])}:</p>"
            yield f"<pre>{escape(json.dumps(example['value'], indent=2))}</pre>"


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _prose(text: str) -> str:
    return "".join(f"<p>{_inline(paragraph)}</p>" for paragraph in text.split("\n\n") if paragraph.strip())


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
