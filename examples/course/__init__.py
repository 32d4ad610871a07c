"""The techniques of a course on machine-learning compilation, one module each.

In each module but ``session``, ``show(client, folder)`` compiles through a service, prints the result and
asserts it. ``folder`` holds the model's file and the bundle. See ``docs/course.md``.
"""
