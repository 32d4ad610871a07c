"""The techniques of a course on machine-learning compilation, each as a request with a visible result.

Every module but ``session`` shows one: ``show(client, folder)`` compiles through a service, prints what is to
be seen, and asserts it. ``folder`` takes the model's file and the bundle. ``docs/course.md`` explains them.
"""
