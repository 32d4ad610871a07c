"""What ``bessemer inspect`` prints of a signature."""

from collections.abc import Mapping

import pytest

from bessemer.cli.models import model_lines
from bessemer.contract.base import now
from bessemer.contract.model import ConstantSpec, Inspection, Model, ModelFormat, ModelState, Signature
from bessemer.contract.structure import (
    ArgumentStructure,
    CallStructure,
    Container,
    ContainerKind,
    TensorLeaf,
)
from bessemer.contract.tensor import TensorSpec

X = TensorSpec(name="x", shape=(1, 4))
IMAGE = TensorSpec(name="images.0", shape=(3, 8))
IMAGES = Container(container=ContainerKind.LIST, items=(TensorLeaf(tensor="images.0"),))

PRINTED: Mapping[str, tuple[Signature, list[str]]] = {
    "a tensor": (
        Signature(
            inputs=(X,),
            input_names=("x",),
            parameters=0,
            call=CallStructure(
                arguments=(ArgumentStructure(name="x", structure=TensorLeaf(tensor="x")),),
                returns=TensorLeaf(tensor="output"),
            ),
        ),
        ["input       x=1x4:float32"],
    ),
    "a list": (
        Signature(
            inputs=(IMAGE,),
            input_names=("images.0",),
            parameters=0,
            call=CallStructure(arguments=(ArgumentStructure(name="images", structure=IMAGES),)),
        ),
        ["input       images.0=3x8:float32", "call        (images: [images.0])"],
    ),
    "containers that a request fills": (
        Signature(
            input_names=("images", "masks"),
            constants=(ConstantSpec(name="sizes", type="List[int]", required=True),),
            parameters=0,
            call=CallStructure(
                arguments=(
                    ArgumentStructure(name="images", type="List[Tensor]"),
                    ArgumentStructure(name="masks", type="Optional[Dict[str, Tensor]]"),
                    ArgumentStructure(name="sizes", type="List[int]"),
                )
            ),
        ),
        [
            "constant    sizes (List[int]: pass --constant sizes.0=VALUE)",
            "input       images (List[Tensor]: pass --input images.0=SHAPE)",
            "input       masks (Optional[Dict[str, Tensor]]: pass --input masks.KEY=SHAPE)",
        ],
    ),
}


@pytest.mark.parametrize(("signature", "lines"), PRINTED.values(), ids=PRINTED)
def test_an_inspection_prints_how_to_name_inputs(signature: Signature, lines: list[str]) -> None:
    model = Model(
        digest="0" * 64,
        size_bytes=1,
        state=ModelState.READY,
        inspection=Inspection(format=ModelFormat.TORCHSCRIPT, signature=signature),
        created_at=now(),
    )
    assert list(model_lines(model))[4:] == lines
