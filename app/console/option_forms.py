"""Makes forms from the API's own schema: the options of a compilation in groups of fields."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from bessemer.contract.device import Device
from bessemer.contract.offers import Offers
from bessemer.contract.request import Submission

Schema = Mapping[str, Any]
_REFERENCE = "#/$defs/"
_NULL = re.compile(r"\b[Nn]ull(?=: )")
"""How descriptions refer to an unset field, which is empty in a form."""

ELSEWHERE = frozenset({"model", "target", "inputs", "dimensions", "constants"})
"""The fields of a request that the page asks for in other ways."""
GENERAL = "general"
TITLES: Mapping[str, str] = {
    GENERAL: "General",
    "tune": "Tuning",
    "ir": "IR",
    "until_ms": "Until (ms)",
    "timeout_seconds": "Timeout (s)",
    "seconds": "Seconds",
    "inspect": "Inspection",
    "verify": "Verification",
    "optimize": "Optimization",
    "translate": "Translation",
}
ORDER = (GENERAL, "tune", "benchmark", "inspect", "verify", "optimize", "translate")
"""The groups in the order of the page; groups of later releases follow."""
BASIC = frozenset(
    {
        "name",
        "labels",
        "parameters",
        "stop_after",
        "tune.trials",
        "tune.seconds",
        "benchmark.compare",
        "inspect.ir",
        "inspect.assembly",
        "inspect.graph",
    }
)
"""The fields that are not folded away."""


class Kind(StrEnum):
    """The kind of a field, which decides its control."""

    SWITCH = "switch"
    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    CHOICES = "choices"
    TEXT = "text"
    LIST = "list"
    PAIRS = "pairs"
    JSON = "json"


@dataclass(frozen=True)
class OptionField:
    """One field.

    Attributes:
        path: its place in the request, such as ``tune.trials``.
        title: its label.
        help: the API's description.
        default: the API's default.
        choices: the values of a choice.
        minimum: the least number, if any.
        maximum: the greatest number, if any.
        example: a value that the API's description shows; None if it shows none.
    """

    path: str
    kind: Kind
    title: str
    help: str
    default: Any
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    example: Any = None

    @property
    def is_basic(self) -> bool:
        """Whether the page shows it at once."""
        return self.path in BASIC


@dataclass(frozen=True)
class OptionGroup:
    """Fields that belong together."""

    name: str
    title: str
    help: str
    fields: tuple[OptionField, ...] = field(default=())

    @property
    def basic(self) -> tuple[OptionField, ...]:
        """The fields that the page shows at once."""
        return tuple(each for each in self.fields if each.is_basic)

    @property
    def advanced(self) -> tuple[OptionField, ...]:
        """The fields that are folded away."""
        return tuple(each for each in self.fields if not each.is_basic)


def known_names(offers: Offers, devices: Iterable[Device]) -> dict[str, tuple[str, ...]]:
    """The names that live workers and devices offer, by the paths of the fields that take them."""
    kernels = offers.kernels.items()
    return {
        "optimize.enable": offers.rewrites,
        "optimize.disable": offers.rewrites,
        "tune.strategy": offers.strategies,
        "tune.spaces": offers.spaces,
        "kernels": tuple(f"{operator}={name}" for operator, names in kernels for name in names),
        "device": tuple(device.name for device in devices),
    }


@cache
def option_groups() -> tuple[OptionGroup, ...]:
    """The options of a compilation."""
    request = Submission.model_json_schema()
    schemas: Schema = request["$defs"]
    general: list[OptionField] = []
    groups: dict[str, OptionGroup] = {}
    for name, given in request["properties"].items():
        schema = _resolved(schemas, given)
        if name in ELSEWHERE:
            continue
        if "properties" in schema:
            fields = tuple(_fields(schemas, schema, name))
            groups[name] = OptionGroup(name, _title(name), given.get("description", ""), fields)
        else:
            general.append(_field(schemas, name, given))
    groups[GENERAL] = OptionGroup(GENERAL, _title(GENERAL), "", tuple(general))
    order = {name: place for place, name in enumerate(ORDER)}
    return tuple(sorted(groups.values(), key=lambda group: order.get(group.name, len(order))))


def _fields(schemas: Schema, schema: Schema, prefix: str) -> Iterator[OptionField]:
    for name, given in schema["properties"].items():
        yield _field(schemas, f"{prefix}.{name}", given)


def _field(schemas: Schema, path: str, given: Schema) -> OptionField:
    schema = _resolved(schemas, given)
    kind, choices = _kind(schemas, schema)
    examples = given.get("examples", ())
    least, most = schema.get("minimum"), schema.get("maximum")
    return OptionField(
        path=path,
        kind=kind,
        title=_title(path.rpartition(".")[2]),
        help=_NULL.sub(
            lambda found: "Empty" if found[0] == "Null" else "empty", given.get("description", "")
        ),
        default=given.get("default"),
        choices=choices,
        minimum=schema.get("exclusiveMinimum") if least is None else least,
        maximum=schema.get("exclusiveMaximum") if most is None else most,
        example=examples[0] if examples else None,
    )


def _kind(schemas: Schema, schema: Schema) -> tuple[Kind, tuple[str, ...]]:
    if "enum" in schema:
        return Kind.CHOICE, tuple(schema["enum"])
    match schema.get("type"):
        case "boolean":
            return Kind.SWITCH, ()
        case "integer":
            return Kind.INTEGER, ()
        case "number":
            return Kind.NUMBER, ()
        case "string":
            return Kind.TEXT, ()
        case "array":
            items = _resolved(schemas, schema.get("items", {}))
            if "enum" in items:
                return Kind.CHOICES, tuple(items["enum"])
            return (Kind.LIST if items.get("type") == "string" else Kind.JSON), ()
        case "object":
            return (Kind.PAIRS if _has_texts(schemas, schema) else Kind.JSON), ()
    return Kind.JSON, ()


def _has_texts(schemas: Schema, schema: Schema) -> bool:
    """Whether every value of an object is a text."""
    values = [*schema.get("patternProperties", {}).values()]
    values += [schema["additionalProperties"]] if isinstance(schema.get("additionalProperties"), dict) else []
    return bool(values) and all(_resolved(schemas, value).get("type") == "string" for value in values)


def _resolved(schemas: Schema, schema: Schema) -> Schema:
    """A schema without its reference, and without the null of an optional field."""
    if "$ref" in schema:
        found: Schema = schemas[schema["$ref"].removeprefix(_REFERENCE)]
        return found
    forms = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
    return _resolved(schemas, forms[0]) if len(forms) == 1 else schema


def _title(name: str) -> str:
    return TITLES.get(name) or name.replace("_", " ").capitalize()
