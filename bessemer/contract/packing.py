"""What to do in place of packing padded sequences."""

__all__ = ["UNPACKED"]

UNPACKED = (
    "the model calls pack_padded_sequence, whose result has sizes that depend on the lengths' values. Run "
    "the recurrent layer on the padded batch, and select each sequence's last step with gather at "
    "lengths - 1, or mask the padding with torch.where. For a bidirectional layer, run the second direction "
    "as a layer of its own, on reversed sequences"
)
