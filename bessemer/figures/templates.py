"""Opens folders of templates of HTML pages. Every text that is not markup is escaped."""

from collections.abc import Callable, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def open_templates(folder: Path, filters: Mapping[str, Callable[..., object]]) -> Environment:
    """Open a folder of templates.

    Args:
        folder: the templates.
        filters: functions that templates may call as filters, by name.
    """
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment
