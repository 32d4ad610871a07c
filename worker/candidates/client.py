"""The job child's handle on the candidate server, which forks every build and every measuring process.

The server is forked right after confinement, before anything ran in parallel: forking after a torch or TVM
parallel region hangs the child at its next one.
"""
