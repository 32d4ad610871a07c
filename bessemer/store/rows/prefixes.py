"""Looking up ids by their first characters."""

import sqlalchemy as sa

LONGEST = 64


def starts_with(column: sa.Column[str], prefix: str) -> sa.ColumnElement[bool]:
    """Whether an id starts with a prefix; the bounds let the database use the column's index."""
    if len(prefix) >= LONGEST:
        return column == prefix
    highest = prefix.ljust(LONGEST, "z")
    return sa.and_(column >= prefix, column <= highest, sa.func.substr(column, 1, len(prefix)) == prefix)
