"""What a preflight finds out about a model without compiling it."""

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.problem import Problem


class OperatorUse(Document):
    """A torch operator, after decomposition to core operators."""

    name: str = Field(description="The name in `torch.ops`, such as `aten.linear.default`.")
    calls: int = Field(description="Number of calls in the graph.")
    flops: int = Field(
        description="Floating-point operations of its matrix products and convolutions in one run; else 0."
    )
    supported: bool = Field(description="Whether the compiler can translate it.")


class Preflight(Document):
    """The result of a compilation that stops after `translate`. Dynamic sizes count as the example's."""

    compiles: bool = Field(description="Whether the model can be translated; false if there are `problems`.")
    problems: tuple[Problem, ...] = Field(
        description="Why the model would not compile: all unsupported operators with their places, or the "
        "place where the translation failed."
    )
    operators: tuple[OperatorUse, ...] = Field(description="The operators, most frequent first.")
    flops: int = Field(
        description="Floating-point operations of one run: two for each term of a matrix product or "
        "convolution; other operators do not count."
    )
    parameters: int = Field(description="Number of elements in all parameters and buffers.")
    parameter_bytes: int = Field(description="Their size; shared memory counts once.")
    peak_activation_bytes: int = Field(
        description="Peak memory of inputs and intermediate results without fusion, each kept until its last "
        "use. The library needs less."
    )
