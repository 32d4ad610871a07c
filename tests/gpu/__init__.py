"""A reference executor for GPU kernels: runs what TVM lowered on the CPU, and finds its faults.

- ``run``: what tests call: a function against the CPU, a function on arrays, a whole module
- ``kernel``: TIR statements, by the lanes (threads) that execute them in lockstep; launches of kernels
- ``expressions``: TIR expressions
- ``intrinsics``: barriers, shuffles, asynchronous copies, atomics, tensor cores
- ``tensor_cores``: how matrices lie in the registers of a warp
- ``memory``: global memory, shared memory and registers, with their checks
- ``lanes``: active lanes, the values that they see, and which accesses barriers order
- ``faults``: what it finds

A test of a schedule is two lines::

    function = ...                        # a PrimFunc as legalization and fusion leave it
    assert_computes(function)             # schedules it, runs it, compares it with the function on the CPU
"""
