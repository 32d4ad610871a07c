"""From a scheduled module to a shared library: lowering, code generation, linking."""
