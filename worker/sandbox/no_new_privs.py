"""The layer ``no-new-privs``: no exec gives a job a right that it has not."""

from bessemer.contract.sandbox import Layer, LayerStatus
from worker.sandbox.kernel import Prctl, prctl


def confine_no_new_privs() -> LayerStatus:
    """Set the bit, which nothing can clear, and read it back."""
    prctl(Prctl.SET_NO_NEW_PRIVS, 1)
    holds = prctl(Prctl.GET_NO_NEW_PRIVS) == 1
    return LayerStatus(layer=Layer.NO_NEW_PRIVS, holds=holds, required=True)
