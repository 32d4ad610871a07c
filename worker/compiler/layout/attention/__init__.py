"""The pass ``FuseAttention``: each attention as one function of TensorIR."""
