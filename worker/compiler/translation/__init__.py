"""Translation of exported programs to Relax, one rule per operator.

Rules, including the built-in ones in ``rules/``, come from the entry points named by ``POINT`` in
``registry.py``. TVM's own converters handle operators without a rule.
"""
