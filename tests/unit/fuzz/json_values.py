"""JSON that is almost a valid document."""

from typing import Any

from hypothesis import strategies as st

MAX_EDITS = 3
STRANGE = st.sampled_from(
    [
        *(None, True, -1, 0, 1 << 31, 1 << 63, 1 << 70, 10**400, -0.0, 1e308, float("inf"), float("nan")),
        *("", "x", "\0", "\ud800", "é" * 200, "host", "a" * 5000),
        *([], {}, [[]], [None], {"": None}),
    ]
)
VALUES = STRANGE | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@st.composite
def edited(draw: st.DrawFn, documents: st.SearchStrategy[Any]) -> Any:
    """A document in which a few values, at any depth, are replaced, removed or repeated."""
    document = draw(documents)
    for _ in range(draw(st.integers(0, MAX_EDITS))):
        document = _edit(draw, document)
    return document


def _edit(draw: st.DrawFn, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 4)) == 0:
        return draw(VALUES)
    if isinstance(value, list):
        place = draw(st.integers(0, len(value) - 1))
        edited_items = draw(st.sampled_from([[], [value[place]] * 2, None]))
        new = [_edit(draw, value[place])] if edited_items is None else edited_items
        return [*value[:place], *new, *value[place + 1 :]]
    key = draw(st.sampled_from(sorted(value)))
    match draw(st.sampled_from(["descend", "descend", "remove", "rename", "add"])):
        case "descend":
            return {**value, key: _edit(draw, value[key])}
        case "remove":
            return {name: inner for name, inner in value.items() if name != key}
        case "rename":
            return {
                draw(st.text(max_size=10)) if name == key else name: inner for name, inner in value.items()
            }
        case _:
            return {**value, draw(st.text(max_size=10)): draw(VALUES)}
