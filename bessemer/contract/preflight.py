"""What can be said of a model without compiling it."""

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.problem import Problem


class OperatorUse(Document):
    """One operator of torch, after decomposition to core operators."""

    name: str = Field(description="As `torch.ops` prints it, such as `aten.linear.default`.")
    calls: int = Field(description="How often it stands in the graph.")
    flops: int = Field(description="Of its matrix products and convolutions, over one run; else 0.")
    supported: bool = Field(description="Whether the compiler can translate it.")


class Preflight(Document):
    """The findings of a compilation that stops after `translate`. Open sizes count as the example's."""

    compiles: bool = Field(description="Whether the model was translated; false where `problems` has any.")
    problems: tuple[Problem, ...] = Field(
        description="What would not compile: all unsupported operators with their places, or where the "
        "translation failed."
    )
    operators: tuple[OperatorUse, ...] = Field(description="Most frequent first.")
    flops: int = Field(
        description="Floating-point operations of one run: two for each term of a matrix product or a "
        "convolution, nothing for the rest."
    )
    parameters: int = Field(description="Elements in all parameters and buffers.")
    parameter_bytes: int = Field(description="Of those; what shares its memory counts once.")
    peak_activation_bytes: int = Field(
        description="The most that inputs and results in between need at once, each kept from its making to "
        "its last use, without fusion: the library needs less."
    )
